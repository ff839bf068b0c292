//! The suite, by what it asks.

pub mod admin;
pub mod commit;
pub mod control;
pub mod create;
pub mod load;
pub mod read;
pub mod retain;
