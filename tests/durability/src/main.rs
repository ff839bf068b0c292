//! Puts load on a broker's durable queues, breaks the broker or its store while it goes on, and checks afterwards that
//! every word that the broker gave was kept.
//!
//! | room | subject |
//! |---|---|
//! | `arguments` | the command line |
//! | `faults` | what is broken when, by a seed |
//! | `load`, `produce`, `consume` | who pushes and pops meanwhile, and what they note |
//! | `history`, `judge` | what was noted, and what of it breaks a promise |
//! | `audit` | the log as it stands at the end |
//! | `wire`, `http` | how a broker is spoken to |
//! | `broker`, `postgres`, `process`, `clock` | the processes that this one starts, and what time it is for them |
//!
//! Ends with 0 when all promises were kept, with 1 when one was broken, with 2 when the run could not be made.

mod arguments;
mod audit;
mod broker;
mod clock;
mod consume;
#[cfg(test)]
mod fake;
mod faults;
mod history;
mod http;
mod judge;
mod load;
mod postgres;
mod process;
mod produce;
mod random;
mod wire;

use std::process::ExitCode;

use clap::Parser;

/// Why a run could not be made or came to no verdict: a sentence that says what was wanted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(String);

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    match faults::run(&arguments) {
        Ok(verdict) => {
            print!("{verdict}");
            if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failed) => {
            eprintln!("durability: {failed}");
            ExitCode::from(2)
        }
    }
}
