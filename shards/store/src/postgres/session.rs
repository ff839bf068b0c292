//! One connection: dialled, authenticated, with its prepared statements.

use std::{
    cell::RefCell, collections::HashMap, fmt, future::poll_fn, io, rc::Rc, sync::Arc, task::Poll, time::Duration,
};

use queen_fabric::rt::{self, TcpStream, UnixStream, within};
use tokio_postgres::{
    Client, Row, Statement,
    config::{Host, SslMode as LibrarySslMode},
    error::{Severity, SqlState},
    types::{ToSql, Type},
};
use tokio_rustls::rustls::ClientConfig;

use super::{
    config::{PostgresConfig, SslMode, port},
    socket::Socket,
    tls::Connector,
};

/// From dialling to the end of authentication.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// A server that says nothing for so long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// The port's part in the name of a unix-domain socket.
const SOCKET_NAME: &str = ".s.PGSQL.";

/// What a connection is for: its name in `pg_stat_activity`, and the server's settings on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commits batches.
    Commit,
    /// Makes rows and does what is rare.
    Change,
    /// Loads rows.
    Load,
    /// Reads lists and counts.
    Read,
}

impl Purpose {
    fn application_name(self) -> &'static str {
        match self {
            Self::Commit => "queen commit",
            Self::Change => "queen change",
            Self::Load => "queen load",
            Self::Read => "queen read",
        }
    }

    /// All statements but those that count find their rows by key. A plan is made once and must be one that stays
    /// right when tables grow; rows are sorted in memory.
    fn options(self) -> &'static str {
        match self {
            Self::Read => "-c statement_timeout=30000 -c jit=off",
            _ => {
                "-c statement_timeout=30000 -c jit=off -c plan_cache_mode=force_generic_plan -c work_mem=65536 \
                 -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
            }
        }
    }
}

/// A statement, with the types of its parameters.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

/// What can be the matter with a statement.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It was in conflict with another and may be tried again at once. Nothing was done.
    Conflict,
    /// The connection is gone. What was asked for may have been done.
    Gone(Box<str>),
    /// The server can't now. Nothing was done.
    Away(Box<str>),
    /// The server will not. Nothing was done.
    Refused(Box<str>),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("a conflict with another statement"),
            Self::Gone(reason) | Self::Away(reason) | Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl Trouble {
    fn of(error: &tokio_postgres::Error) -> Self {
        let text = text_of(error);
        let Some(said) = error.as_db_error() else {
            // A value that cannot be sent, or an answer that cannot be read, is no matter of the connection.
            let converted = std::error::Error::source(error).is_some_and(|source| !source.is::<io::Error>());
            return if converted { Self::Refused(text) } else { Self::Gone(text) };
        };
        if !matches!(said.parsed_severity(), Some(Severity::Error) | None) {
            // It closes the connection, at any point of a commit.
            return Self::Gone(text);
        }
        let code = said.code();
        if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) {
            return Self::Conflict;
        }
        // Out of resources; busy; cancelled or too slow; going down; a disk that fails; damage; read-only.
        let away = ["53", "55", "57", "58", "XX"].iter().any(|class| code.code().starts_with(class))
            || *code == SqlState::READ_ONLY_SQL_TRANSACTION;
        if away { Self::Away(text) } else { Self::Refused(text) }
    }
}

/// What an error says, with its causes.
fn text_of(error: &tokio_postgres::Error) -> Box<str> {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code()).into();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text.into()
}

/// A connection. Statements that are asked at the same time follow one another on it without waiting for answers.
pub(super) struct Session {
    client: Client,
    /// Those that are prepared, by their text; none are behind a pooler.
    statements: Option<RefCell<HashMap<&'static str, Statement>>>,
}

impl Session {
    /// Connects to the first host that takes it.
    ///
    /// # Errors
    /// What went wrong, for people.
    pub(super) async fn open(
        config: &PostgresConfig,
        tls: &Arc<ClientConfig>,
        purpose: Purpose,
    ) -> Result<Rc<Self>, Box<str>> {
        let mut reasons = Vec::new();
        for at in 0..config.server.get_hosts().len() {
            match within(CONNECT_PATIENCE, Self::open_at(config, tls, purpose, at)).await {
                Some(Ok(session)) => return Ok(Rc::new(session)),
                Some(Err(reason)) => reasons.push(reason),
                None => reasons.push(format!("no answer within {} s", CONNECT_PATIENCE.as_secs()).into()),
            }
        }
        Err(reasons.join("; ").into())
    }

    async fn open_at(
        config: &PostgresConfig,
        tls: &Arc<ClientConfig>,
        purpose: Purpose,
        at: usize,
    ) -> Result<Self, Box<str>> {
        let failed = |error: io::Error| -> Box<str> { error.to_string().into() };
        let port = port(&config.server, at);
        let mut server = config.server.clone();
        server.application_name(purpose.application_name());
        if config.named_statements {
            // A pooler takes no options: it would hand them to others.
            server.options(purpose.options());
        }
        server.ssl_mode(match config.ssl_mode {
            SslMode::Disable => LibrarySslMode::Disable,
            SslMode::Prefer => LibrarySslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => LibrarySslMode::Require,
        });
        let (socket, host) = match &config.server.get_hosts()[at] {
            Host::Unix(directory) => {
                server.ssl_mode(LibrarySslMode::Disable);
                let path = directory.join(format!("{SOCKET_NAME}{port}"));
                (Socket::Unix(UnixStream::connect(&path).map_err(failed)?), String::new())
            }
            Host::Tcp(host) => {
                let stream = TcpStream::connect_to(host, port).await.map_err(failed)?;
                stream.set_keepalive(KEEPALIVE_IDLE).map_err(failed)?;
                (Socket::Tcp(stream), host.clone())
            }
        };
        let connector = Connector { config: Arc::clone(tls), host };
        let (client, connection) = server.connect_raw(socket, connector).await.map_err(|error| text_of(&error))?;
        // It moves the bytes until the client is dropped; what goes wrong there shows in what the client is asked.
        rt::spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ended: {}", text_of(&error));
            }
        })
        .detach();
        Ok(Self { client, statements: config.named_statements.then(RefCell::default) })
    }

    /// Whether it is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs a statement, a transaction of its own, and gives its rows once it has committed.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub(super) async fn query(&self, sql: &Sql, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Trouble> {
        self.try_query(sql, parameters).await.map_err(|error| Trouble::of(&error))
    }

    async fn try_query(
        &self,
        sql: &Sql,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        debug_assert_eq!(sql.types.len(), parameters.len(), "{}", sql.text);
        let Some(statements) = &self.statements else {
            let typed: Vec<_> = parameters.iter().copied().zip(sql.types.iter().cloned()).collect();
            return self.client.query_typed(sql.text, &typed).await;
        };
        let known = statements.borrow().get(sql.text).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.client.prepare_typed(sql.text, sql.types).await?;
                statements.borrow_mut().insert(sql.text, statement.clone());
                statement
            }
        };
        self.client.query(&statement, parameters).await
    }

    /// The rows of several statements that do not depend on each other: they are sent together.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub(super) async fn queries<const N: usize>(
        &self,
        asked: [(&Sql, &[&(dyn ToSql + Sync)]); N],
    ) -> Result<[Vec<Row>; N], Trouble> {
        let mut asked = asked.map(|(sql, parameters)| Box::pin(self.query(sql, parameters)));
        let mut rows = [const { None }; N];
        poll_fn(|cx| {
            for (query, rows) in asked.iter_mut().zip(&mut rows).filter(|(_, rows)| rows.is_none()) {
                if let Poll::Ready(outcome) = query.as_mut().poll(cx) {
                    *rows = Some(outcome?);
                }
            }
            if rows.iter().all(Option::is_some) { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        Ok(rows.map(|rows| rows.expect("all have come")))
    }

    /// Runs several statements without parameters, as one transaction unless they say otherwise.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Trouble> {
        self.client.batch_execute(sql).await.map_err(|error| Trouble::of(&error))
    }
}
