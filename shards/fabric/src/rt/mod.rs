//! The one door to the runtime.
//!
//! Executors, tasks, timers and sockets as the shards use them. Nothing outside this module names the runtime below
//! it, glommio: a pinned thread per executor, an io_uring each, tasks that never leave their thread.

mod alarm;
mod deadline;
mod executor;
mod net;
mod notify;
mod poll_set;
mod port;
mod precise_timer;

pub use alarm::{foreign, foreign_waker};
pub use deadline::{Deadline, sleep, sleep_until};
pub use executor::{Executor, ExecutorError, JoinHandle, Task, TaskQueue, spawn_local, yield_now};
pub use net::{TcpListener, TcpStream};
pub use notify::Notify;
pub use poll_set::PollSet;
pub use port::{ReservedPort, reserve_port};
pub use precise_timer::{PreciseTimer, monotonic_ns};
