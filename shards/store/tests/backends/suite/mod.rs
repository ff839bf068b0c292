//! The suite, by what it asks.

pub mod commit;
