//! What a setting may be: how its text is read, what would be right, how its value is shown.
//!
//! A [`Kind`] knows the field it fills, so that a row of the table is all there is to a setting.

use std::net::IpAddr;
use std::path::PathBuf;

use queen_fabric::placement::CpuList;
use queen_mesh::{PEERS_MAX, parse_peers};
use queen_store::SslMode;
use tracing_subscriber::EnvFilter;
use ureq::http::Uri;

use super::jwt::{self, PublicKeySource};
use super::mesh;
use super::storage::{self, Secret};
use super::{LogLevel, Settings};

/// A field of [`Settings`], to read and to write.
pub(super) struct Field<T> {
    pub get: fn(&Settings) -> &T,
    pub get_mut: fn(&mut Settings) -> &mut T,
}

/// Names a field by its path: `field!(http.max_body_bytes)`.
macro_rules! field {
    ($($path:ident).+) => {
        crate::settings::kind::Field {
            get: |settings| &settings.$($path).+,
            get_mut: |settings| &mut settings.$($path).+,
        }
    };
}
pub(super) use field;

/// What a setting may be, and the field it fills.
pub(super) enum Kind {
    /// A whole number of a closed range.
    Integer { min: u64, max: u64, field: Field<u64> },
    /// The same, or absent: then the broker works it out.
    OptionalInteger { min: u64, max: u64, field: Field<Option<u64>> },
    /// A TCP port.
    Port(Field<u16>),
    /// Eight words, in any case.
    Boolean(Field<bool>),
    /// The same, or absent: then another setting decides.
    OptionalBoolean(Field<Option<bool>>),
    /// An address to bind.
    Address(Field<IpAddr>),
    /// The name or address of a host.
    Host(Field<Option<String>>),
    /// A list of peers, read tolerantly: what is checked is how many there are.
    Peers(Field<Option<String>>),
    /// The id of a server.
    ServerId(Field<Option<String>>),
    /// A directory, made when it is missing.
    Directory(Field<PathBuf>),
    /// One core.
    Cpu(Field<Option<usize>>),
    /// A list of cores.
    Cpus(Field<Option<CpuList>>),
    /// A log level by its word.
    Level(Field<LogLevel>),
    /// A filter in the form of `tracing-subscriber`.
    Filter(Field<Option<String>>),
    /// Any text.
    Text(Field<Option<String>>),
    /// Any text, which is never shown.
    Secret(Field<Option<Secret>>),
    /// Where PostgreSQL is; with a password, so never shown.
    PostgresUrl(Field<Option<Secret>>),
    /// How a connection is encrypted.
    Encryption(Field<SslMode>),
    /// Where something is to be fetched over HTTP.
    WebUrl(Field<Option<Uri>>),
    /// A public key in PEM, or the file that holds it.
    PublicKey(Field<Option<PublicKeySource>>),
    /// The name of a claim.
    Claim(Field<String>),
    /// Paths of routes, with commas between them.
    Paths(Field<Vec<String>>),
}

impl Kind {
    /// What would be right, to be read after "must be".
    pub(super) fn right(&self) -> String {
        match self {
            Self::Integer { min, max, .. } | Self::OptionalInteger { min, max, .. } => {
                format!("a whole number from {min} to {max}")
            }
            Self::Port(_) => format!("a whole number from 0 to {}", u16::MAX),
            Self::Boolean(_) | Self::OptionalBoolean(_) => "one of true, false, 1, 0, yes, no, on, off".into(),
            Self::Address(_) => "an IPv4 or IPv6 address such as 0.0.0.0 or ::".into(),
            Self::Host(_) => "the name or address of a host, such as queen-1.internal or 10.0.0.7".into(),
            Self::Peers(_) => {
                format!("at most {PEERS_MAX} hosts such as queen-1 or queen-1:6633, with commas between them")
            }
            Self::ServerId(_) => mesh::right_server_id(),
            Self::Directory(_) => "a path in UTF-8".into(),
            Self::Cpu(_) => format!("the number of a core, from 0 to {}", CpuList::CPU_MAX),
            Self::Cpus(_) => "a list of cores such as 0-3,6".into(),
            Self::Level(_) => "one of error, warn, info, debug, trace".into(),
            Self::Filter(_) => "a log filter such as info,queen_data=debug".into(),
            Self::Text(_) | Self::Secret(_) => "text in UTF-8".into(),
            Self::PostgresUrl(_) => {
                "a PostgreSQL URL such as postgres://user:password@host:5432/database?sslmode=verify-full".into()
            }
            Self::Encryption(_) => "one of disable, prefer, require, verify-ca, verify-full".into(),
            Self::WebUrl(_) => {
                "an http or https URL without user and password, such as https://issuer.example/jwks.json".into()
            }
            Self::PublicKey(_) => {
                "an RSA public key of 2048 bits or more or a P-256 public key in PEM, or the path of a file that holds one"
                    .into()
            }
            Self::Claim(_) => "the name of a claim".into(),
            Self::Paths(_) => "paths that begin with /, with commas between them".into(),
        }
    }

    /// Whether its value must not be shown.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, Self::Secret(_) | Self::PostgresUrl(_) | Self::PublicKey(_))
    }

    /// What may be shown of a text that was set, right or wrong.
    pub(super) fn shown(&self, text: &str) -> String {
        match self {
            _ if self.is_secret() => Secret::HIDDEN.to_owned(),
            // What stands before an @ may be a password.
            Self::WebUrl(_) => match text.rsplit_once('@') {
                Some((_, rest)) => format!("{}@{rest}", Secret::HIDDEN),
                None => text.to_owned(),
            },
            _ => text.to_owned(),
        }
    }

    /// Reads `text` into the field; `None`, with the field untouched, when it is not of this kind.
    #[must_use]
    pub(super) fn fill(&self, settings: &mut Settings, text: &str) -> Option<()> {
        match self {
            Self::Integer { min, max, field } => {
                *(field.get_mut)(settings) = integer(text, *min, *max)?;
            }
            Self::OptionalInteger { min, max, field } => {
                *(field.get_mut)(settings) = Some(integer(text, *min, *max)?);
            }
            Self::Port(field) => {
                let port = integer(text, 0, u64::from(u16::MAX))?;
                *(field.get_mut)(settings) = u16::try_from(port).ok()?;
            }
            Self::Boolean(field) => *(field.get_mut)(settings) = boolean(text)?,
            Self::OptionalBoolean(field) => *(field.get_mut)(settings) = Some(boolean(text)?),
            Self::Address(field) => *(field.get_mut)(settings) = text.parse().ok()?,
            Self::Host(field) => *(field.get_mut)(settings) = Some(mesh::host(text)?),
            Self::Peers(field) => {
                parse_peers(utf8(text)?, 1).ok()?;
                *(field.get_mut)(settings) = Some(text.to_owned());
            }
            Self::ServerId(field) => *(field.get_mut)(settings) = Some(mesh::server_id(text)?),
            Self::Directory(field) => *(field.get_mut)(settings) = directory(text)?,
            Self::Cpu(field) => {
                let cpu = integer(text, 0, CpuList::CPU_MAX as u64)?;
                *(field.get_mut)(settings) = Some(usize::try_from(cpu).ok()?);
            }
            Self::Cpus(field) => *(field.get_mut)(settings) = Some(CpuList::parse(text).ok()?),
            Self::Level(field) => *(field.get_mut)(settings) = level(text)?,
            Self::Filter(field) => {
                EnvFilter::try_new(text).ok()?;
                *(field.get_mut)(settings) = Some(text.to_owned());
            }
            Self::Text(field) => *(field.get_mut)(settings) = Some(utf8(text)?.to_owned()),
            Self::Secret(field) => *(field.get_mut)(settings) = Some(Secret::new(utf8(text)?)),
            Self::PostgresUrl(field) => {
                storage::check_url(utf8(text)?)?;
                *(field.get_mut)(settings) = Some(Secret::new(text));
            }
            Self::Encryption(field) => *(field.get_mut)(settings) = text.parse().ok()?,
            Self::WebUrl(field) => *(field.get_mut)(settings) = Some(jwt::web_url(text)?),
            Self::PublicKey(field) => {
                *(field.get_mut)(settings) = Some(PublicKeySource::parse(utf8(text)?)?);
            }
            Self::Claim(field) => *(field.get_mut)(settings) = utf8(text)?.to_owned(),
            Self::Paths(field) => *(field.get_mut)(settings) = jwt::paths(utf8(text)?)?,
        }
        Some(())
    }

    /// The value in force as one would set it; `None` when it is absent.
    pub(super) fn show(&self, settings: &Settings) -> Option<String> {
        match self {
            Self::Integer { field, .. } => Some((field.get)(settings).to_string()),
            Self::OptionalInteger { field, .. } => (field.get)(settings).map(|n| n.to_string()),
            Self::Port(field) => Some((field.get)(settings).to_string()),
            Self::Boolean(field) => Some((field.get)(settings).to_string()),
            Self::OptionalBoolean(field) => (field.get)(settings).map(|on| on.to_string()),
            Self::Address(field) => Some((field.get)(settings).to_string()),
            Self::Directory(field) => Some((field.get)(settings).display().to_string()),
            Self::Cpu(field) => (field.get)(settings).map(|cpu| cpu.to_string()),
            Self::Cpus(field) => (field.get)(settings).as_ref().map(ToString::to_string),
            Self::Level(field) => Some((field.get)(settings).to_string()),
            Self::Filter(field)
            | Self::Text(field)
            | Self::Host(field)
            | Self::Peers(field)
            | Self::ServerId(field) => (field.get)(settings).clone(),
            Self::Secret(field) | Self::PostgresUrl(field) => (field.get)(settings).as_ref().map(ToString::to_string),
            Self::Encryption(field) => Some((field.get)(settings).to_string()),
            Self::WebUrl(field) => (field.get)(settings).as_ref().map(jwt::shown_url),
            Self::PublicKey(field) => (field.get)(settings).as_ref().map(|_| Secret::HIDDEN.to_owned()),
            Self::Claim(field) => Some((field.get)(settings).clone()),
            Self::Paths(field) => Some((field.get)(settings).join(",")),
        }
    }
}

/// Digits alone: no sign, no point, no separators.
fn integer(text: &str, min: u64, max: u64) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits)?;
    (min..=max).contains(&number).then_some(number)
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A path that is refused would name another directory.
fn directory(text: &str) -> Option<PathBuf> {
    utf8(text).map(PathBuf::from)
}

/// Text that was not UTF-8 reaches here with replacement characters: refused.
fn utf8(text: &str) -> Option<&str> {
    (!text.contains(char::REPLACEMENT_CHARACTER)).then_some(text)
}

fn level(text: &str) -> Option<LogLevel> {
    let word = text.to_ascii_lowercase();
    LogLevel::WORDS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level)
}
