//! The command line: four words and nothing else, since every setting is an environment variable.
//!
//! Called by `main`, once.

use std::ffi::OsString;

use crate::settings;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the broker.
    Serve,
    /// Print the settings in force, or what is wrong with them.
    CheckConfig,
    /// Print what this is and how it is set.
    Help,
    /// Print the table of settings for the README.
    HelpMarkdown,
    /// Print name and version.
    Version,
}

/// An argument that means nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown argument {0:?}: it takes --help, --version or --check-config; settings are environment variables")]
pub struct UnknownArgument(pub OsString);

/// Reads the arguments, the program's own name left out. Of several, the first that is not
/// `--check-config` decides, so that `--check-config --help` helps.
///
/// # Errors
/// The first argument that means nothing.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, UnknownArgument> {
    let mut command = Command::Serve;
    for argument in arguments {
        let asked = match argument.to_str() {
            Some("--help" | "-h") => Command::Help,
            Some("--help-markdown") => Command::HelpMarkdown,
            Some("--version" | "-V") => Command::Version,
            Some("--check-config") => Command::CheckConfig,
            _ => return Err(UnknownArgument(argument)),
        };
        if matches!(command, Command::Serve | Command::CheckConfig) {
            command = asked;
        }
    }
    Ok(command)
}

/// What `--version` prints.
#[must_use]
pub fn version() -> String {
    format!("queen {}\n", env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints.
#[must_use]
pub fn help() -> String {
    format!(
        "\
queen {version}: a message broker, one pinned executor per core

Usage: queen [--check-config | --help | --version]

  --check-config   print the settings in force and exit 0, or what is wrong and exit 2
  --help-markdown  print the settings below as a table in Markdown
  --help, --version

Without an argument it serves until SIGTERM or SIGINT; a second signal ends it at once.
Exit codes: 0 a clean stop, 2 a wrong configuration (a taken port, a data directory that
another process holds), 1 anything else.

Settings are environment variables; an empty one counts as unset.

{settings}",
        version = env!("CARGO_PKG_VERSION"),
        settings = settings::help(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, UnknownArgument> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn no_argument_serves() {
        assert_eq!(parsed(&[]), Ok(Command::Serve));
    }

    #[test]
    fn each_word_is_its_command() {
        assert_eq!(parsed(&["--check-config"]), Ok(Command::CheckConfig));
        assert_eq!(parsed(&["--help"]), Ok(Command::Help));
        assert_eq!(parsed(&["-h"]), Ok(Command::Help));
        assert_eq!(parsed(&["--help-markdown"]), Ok(Command::HelpMarkdown));
        assert_eq!(parsed(&["--version"]), Ok(Command::Version));
        assert_eq!(parsed(&["-V"]), Ok(Command::Version));
    }

    #[test]
    fn help_wins_over_check_config_in_either_order() {
        assert_eq!(parsed(&["--help", "--check-config"]), Ok(Command::Help));
        assert_eq!(parsed(&["--check-config", "--help"]), Ok(Command::Help));
    }

    #[test]
    fn an_unknown_argument_is_named_wherever_it_stands() {
        for arguments in [&["--port=1"][..], &["--help", "--port=1"]] {
            assert_eq!(parsed(arguments), Err(UnknownArgument("--port=1".into())));
        }
    }
}
