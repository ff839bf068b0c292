//! An open-loop load generator for message brokers that checks what it measures.
//!
//! A [`Plan`] says what to send where, [`run`] does it on pinned executors, and an [`Outcome`] is what came of it. What
//! people see (command line, files, progress, report, plots, SLAs) stands around these three.

mod check;
pub mod cli;
mod driver;
pub mod outcome;
mod payload;
pub mod plan;
mod random;
mod recorder;
pub mod run;
mod schedule;

pub use outcome::Outcome;
pub use plan::Plan;
