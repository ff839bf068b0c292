//! From an environment to a process that is ready to serve, and from its end to an exit code.
//!
//! In this order, so that each step can say what it needs in the best words available: settings,
//! the log, the machine, the data directory, signals. Called by `main`; `serve` gets a [`Ready`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::io::{self, Write as _};
use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use queen_data::{Tls, TlsError};
use queen_fabric::memory;
use queen_fabric::placement::{Available, PlacementError, Roles};

use crate::checks::{self, CheckError};
use crate::data_dir::{DataDir, DataDirError};
use crate::identity::{self, IdentityError};
use crate::settings::{self, SettingError, Settings};
use crate::signals::{self, Stop};
use crate::{auth, cli, log};

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was asked to stop and did.
    Clean,
    /// The configuration is wrong; nothing was served.
    Configuration,
    /// Anything else.
    Failure,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Clean => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Configuration => Self::from(2),
        }
    }
}

/// Everything that had to be right is right.
#[derive(Debug)]
pub struct Ready {
    /// The settings in force.
    pub settings: Settings,
    /// How many files the process may hold open; `u64::MAX` is no limit.
    pub open_files: u64,
    /// The data directory, held.
    pub data_dir: DataDir,
    /// The certificate of the HTTP port, if it speaks TLS; SIGHUP reads it again.
    pub tls: Option<Arc<Tls>>,
    /// What this broker is called among others.
    pub server_id: String,
    /// Set by the first SIGTERM or SIGINT.
    pub stop: Stop,
}

/// Why the process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The machine does not offer what is needed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The data directory cannot be had.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// This broker has no name.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Signal handlers cannot be had.
    #[error("signals cannot be handled: {0}")]
    Signals(#[source] io::Error),
}

impl BootError {
    /// The exit it leads to.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::DataDir(_) | Self::Identity(_) | Self::Tls(_) => Exit::Configuration,
            Self::Check(_) | Self::Signals(_) => Exit::Failure,
        }
    }
}

/// Does what the command line asks; to serve, boots and hands over to `serve`.
pub fn run(serve: impl FnOnce(Ready) -> Exit) -> Exit {
    match cli::parse(env::args_os().skip(1)) {
        Ok(cli::Command::Serve) => boot_and_serve(serve),
        Ok(cli::Command::CheckConfig) => match read_settings() {
            Ok(settings) => match check_machine(&settings) {
                Exit::Clean => print(&settings::effective(&settings)),
                wrong => wrong,
            },
            Err(exit) => exit,
        },
        Ok(cli::Command::Help) => print(&cli::help()),
        Ok(cli::Command::HelpMarkdown) => print(&settings::markdown()),
        Ok(cli::Command::Version) => print(&cli::version()),
        Err(unknown) => {
            complain(&unknown.to_string());
            Exit::Configuration
        }
    }
}

fn boot_and_serve(serve: impl FnOnce(Ready) -> Exit) -> Exit {
    memory::forgo_huge_pages();
    let settings = match read_settings() {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    log::start(&settings.log);
    panic::set_hook(Box::new(end_at_panic));
    let exit = match prepare(settings) {
        Ok(ready) => serve(ready),
        Err(error) => {
            tracing::error!("{error}");
            error.exit()
        }
    };
    log::finish();
    exit
}

/// Reads the settings from the environment; says everything that is wrong with them, plainly and
/// on stderr, since how to log is one of them.
fn read_settings() -> Result<Settings, Exit> {
    let lookup = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Settings::from_env(lookup).map_err(|errors: Vec<SettingError>| {
        for error in errors {
            complain(&error.to_string());
        }
        Exit::Configuration
    })
}

fn prepare(settings: Settings) -> Result<Ready, BootError> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "queen starts");
    for (name, value) in settings::non_default(&settings) {
        tracing::info!("setting {name}={value}");
    }
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    for unknown in settings::unknown_names(names) {
        let name = unknown.name;
        match unknown.nearest {
            Some(nearest) => tracing::warn!("{name} is no setting: is {nearest} meant?"),
            None => tracing::warn!("{name} is no setting: --help lists them"),
        }
    }
    if settings.http.tenancy_header && !settings.jwt.enabled {
        tracing::warn!(
            "QUEEN_TENANCY_HEADER without JWT_ENABLED: whoever reaches the port can name any tenant, and use /api/v1/system; let only a proxy reach it"
        );
    }
    let open_files = checks::raise_open_files();
    checks::io_uring()?;
    let data_dir = DataDir::open(&settings.process.data_dir)?;
    let server_id = identity::server_id(settings.mesh.server_id.as_deref(), data_dir.path())?;
    let tls = load_tls(&settings)?.map(Arc::new);
    if let Some(tls) = &tls {
        tls.log_end();
    }
    let hang_up = {
        let tls = tls.clone();
        move || read_again(tls.clone())
    };
    let stop = signals::install(hang_up).map_err(BootError::Signals)?;
    Ok(Ready { settings, open_files, data_dir, tls, server_id, stop })
}

fn load_tls(settings: &Settings) -> Result<Option<Tls>, TlsError> {
    settings.listen.tls().map(|(certificate, key)| Tls::load(certificate, key)).transpose()
}

/// What can be said about the files and cores that settings name without serving.
fn check_machine(settings: &Settings) -> Exit {
    let tls = load_tls(settings).err().map(|error| error.to_string());
    let key = auth::verifier(&settings.jwt).err().map(|error| error.to_string());
    let cores = placement(settings).err().map(|error| error.to_string());
    let faults: Vec<_> = tls.into_iter().chain(key).chain(cores).collect();
    faults.iter().for_each(|fault| complain(fault));
    if faults.is_empty() { Exit::Clean } else { Exit::Configuration }
}

/// Which role would run on which of the cores that there are.
fn placement(settings: &Settings) -> Result<(), PlacementError> {
    // Cores that cannot be read are a fault of this machine, which is told when it is to serve.
    let Ok(available) = Available::of_this_thread() else { return Ok(()) };
    let cores = &settings.cores;
    Roles::plan(&available, cores.data.as_ref(), cores.mesh, cores.store).map(drop)
}

/// At SIGHUP: the certificate. Settings are read at boot alone.
///
/// On a thread of its own: a file may be where reading takes for ever, and the next signal may be one to stop.
fn read_again(tls: Option<Arc<Tls>>) {
    let started = thread::Builder::new().name("queen-reload".into()).spawn(move || reload(tls.as_deref()));
    if let Err(error) = started {
        tracing::error!("SIGHUP: nothing was read again: no thread could start: {error}");
    }
}

fn reload(tls: Option<&Tls>) {
    let outcome = tls.map(|tls| tls.reload().inspect(|()| tls.log_end()));
    match outcome {
        None => tracing::info!("SIGHUP: there is nothing to read again; settings are read at boot"),
        Some(Ok(())) => tracing::info!("SIGHUP: certificate and key were read again, for new connections"),
        Some(Err(error)) => tracing::error!("SIGHUP: the certificate stays what it was: {error}"),
    }
}

/// A panic anywhere ends the process: a shard that is gone would leave its queues unserved, and
/// the others waiting for answers that nobody gives.
fn end_at_panic(info: &PanicHookInfo<'_>) {
    log::finish();
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    complain(&format!("{info} (thread {name}); this is a bug, the process ends"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        complain(&backtrace.to_string());
    }
    signal_hook::low_level::exit(1);
}

/// Writes to stdout; a reader that went away is not our failure.
fn print(text: &str) -> Exit {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::Failure,
        _ => Exit::Clean,
    }
}

/// Writes a line to stderr, past the log; nothing is left to do where that fails.
fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "queen: {text}");
}
