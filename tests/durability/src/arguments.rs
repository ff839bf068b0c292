//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Breaks a broker under load, and checks that its durable queues kept their word.
#[derive(Debug, Parser)]
#[command(name = "durability", disable_help_subcommand = true, max_term_width = 120)]
pub struct Arguments {
    /// What is broken.
    #[command(subcommand)]
    pub mode: Mode,
}

/// What is broken.
#[derive(Debug, Subcommand)]
pub enum Mode {
    /// Kills the broker (SIGKILL) at random times and starts it again on the same store
    Kill {
        /// The broker.
        #[command(flatten)]
        common: Common,
        /// Where it keeps its queues
        #[arg(long, value_enum)]
        store: Store,
        /// How many times it is killed
        #[arg(long, default_value_t = 10)]
        rounds: u32,
    },
    /// Ends the broker's PostgreSQL backends one by one (pg_terminate_backend), those first that commit
    Terminate {
        /// The broker.
        #[command(flatten)]
        common: Common,
        /// How many are ended
        #[arg(long, default_value_t = 50)]
        cuts: u32,
    },
    /// Two brokers on one PostgreSQL, one partition, four consumers each; nothing is broken
    TwoBrokers {
        /// The broker.
        #[command(flatten)]
        common: Common,
        /// How long the load goes on
        #[arg(long, default_value_t = 20)]
        seconds: u32,
        /// How far apart the brokers' clocks are, in seconds (needs the Debian package faketime)
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        clocks_apart: u32,
    },
}

/// What every mode takes.
#[derive(Args, Debug)]
pub struct Common {
    /// The broker's program
    #[arg(long, value_name = "PATH")]
    pub broker: PathBuf,
    /// Makes the faults and their times the same again [default: another one in each run, which is printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keeps the scratch directory: the broker's log, its data and PostgreSQL's log
    #[arg(long)]
    pub keep: bool,
}

/// Where a broker keeps its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// Its own file.
    Sqlite,
    /// A private cluster, thrown away at the end.
    Postgres,
}

impl Mode {
    /// What every mode has.
    pub fn common(&self) -> &Common {
        match self {
            Self::Kill { common, .. } | Self::Terminate { common, .. } | Self::TwoBrokers { common, .. } => common,
        }
    }

    /// Where the broker keeps its queues.
    pub fn store(&self) -> Store {
        match self {
            Self::Kill { store, .. } => *store,
            Self::Terminate { .. } | Self::TwoBrokers { .. } => Store::Postgres,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
