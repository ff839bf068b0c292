//! Why the command line could not do what it was asked. All of these end it with exit code 2.

use std::{io, path::PathBuf};

use crate::run::RunError;

/// What went wrong, as a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line does not parse, or asks for its help; clap has the text and the exit code.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// Flags or keys that do not go together.
    #[error("{0}")]
    Conflict(String),
    /// The scenario is neither a word nor a file.
    #[error("{0}, or the path of a .toml file")]
    Scenario(super::words::WordError),
    /// The target is not one.
    #[error("--target {url}: {why}")]
    Target {
        /// As it was written.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file can't be read or written.
    #[error("can't open {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, and where.
        why: String,
    },
    /// The run did not start, or did not come to its end.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The signals of an interruption could not be caught.
    #[error("can't catch signals: {0}")]
    Signals(io::Error),
    /// The plot could not be drawn.
    #[error("can't draw the plot: {0}")]
    Plot(String),
}

impl CliError {
    /// For `map_err` on what is done to a file.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// For `map_err` on what reads a file's content.
    pub fn content<E: ToString>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |error| Self::Content { path, why: error.to_string().trim_end().to_owned() }
    }
}
