//! The one door to the runtime.
//!
//! Executors, tasks, timers and sockets as the shards use them: a pinned thread per executor, an io_uring each, tasks
//! that never leave their thread. Nothing outside this module names what is below it.
//!
//! ```text
//! executor   threads, spawning, joining
//! local      one thread's executor: ready tasks, its turns, wakes from other threads
//! ring       what sockets wait for, and where the thread sleeps
//! timers     what deadlines wait for
//! source     a descriptor that is polled; net, poll_set and precise_timer stand on it
//! resolve    from a host's name to a connection
//! ```

mod deadline;
mod executor;
mod local;
mod net;
mod notify;
mod poll_set;
mod port;
mod precise_timer;
mod resolve;
mod ring;
mod source;
mod timers;

pub use deadline::{Deadline, sleep, sleep_until, within};
pub use executor::{Executor, ExecutorError, JoinHandle, Task, spawn_local};
pub use local::{put_off, yield_now};
pub use net::{TcpListener, TcpStream, UnixStream};
pub use notify::Notify;
pub use poll_set::PollSet;
pub use port::{ReservedPort, reserve_port};
pub use precise_timer::{PreciseTimer, monotonic_ns};
pub use resolve::resolve;
