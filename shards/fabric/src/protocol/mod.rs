//! Messages between roles that do not know each other: fabric is where they meet.

pub mod store;
