//! Which role runs on which core: what the process may use, and the plan made of it.
//!
//! The plan is a pure function of what is [`Available`] and of three settings. Called at boot, printed there, and never
//! changed while the process runs.

mod available;
mod cpu_list;
mod roles;

pub use available::Available;
pub use cpu_list::{CpuList, CpuListError};
pub use roles::{Home, PlacementError, Roles, Setting};
