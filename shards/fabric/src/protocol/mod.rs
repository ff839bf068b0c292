//! Messages between roles that do not know each other: fabric is where they meet.

pub mod control;
pub mod mesh;
pub mod store;

pub use control::{Control, ControlAsk, Grant, Switch};
