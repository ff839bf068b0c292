//! Free memory goes back to the operating system and stays there, also while nothing happens.
//!
//! Two things stand in the way. The program's allocator is mimalloc. It gives pages back a second after they became
//! free, so that those that are soon used again cost no system call; but it looks at them only when a thread has
//! allocated a lot. After a large removal nobody does, and what was freed would stay with the process for as long as it
//! is quiet. So somebody looks for it: a thread of its own, as giving back many megabytes takes milliseconds that no
//! executor has.
//!
//! And where the kernel makes huge pages, one small page in use holds 2 MiB, and what was given back around it comes back
//! within minutes. What stays of many queues lies scattered like that. So the process goes without: see
//! [`forgo_huge_pages`].

use std::{
    convert::Infallible,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// How often it is looked for. As long as the allocator waits before it gives a page back: under load it looks that often
/// by itself, and this adds nothing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Has the kernel keep this process in small pages from now on. Called before it has much memory.
///
/// With huge pages an idle broker took 21 MiB instead of 11, one with 100,000 messages in 10,000 partitions 88 instead of
/// 64, and after retention 41 to 56 instead of 20; CPU time was the same with and without.
pub fn forgo_huge_pages() {
    // Where the kernel refuses, more memory is used, and all else is as it was.
    let _refused = rustix::thread::disable_transparent_huge_pages(true);
}

/// Sees to it that memory which has become free is given back within a few seconds, until it is dropped.
///
/// It does nothing in a program with another allocator.
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct GiveBack {
    /// Nothing is sent: that it is there keeps the thread going.
    _going: Sender<Infallible>,
}

impl GiveBack {
    /// Starts its thread, which sleeps but for some microseconds a second while nothing becomes free.
    ///
    /// # Errors
    /// The system's, when there is no thread to be had.
    pub fn start() -> io::Result<Self> {
        let (going, dropped) = channel();
        thread::Builder::new().name("queen-memory".into()).spawn(move || give_back_until(&dropped))?;
        Ok(Self { _going: going })
    }
}

fn give_back_until(dropped: &Receiver<Infallible>) {
    // SAFETY: any thread may call it, any number of times. The allocator does nothing for a thread that it has not seen,
    // and this one need not have allocated anything.
    unsafe { libmimalloc_sys::mi_thread_init() };
    while dropped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // SAFETY: any thread may call it at any time. It touches the calling thread's own free lists, and of all threads'
        // memory only what is free, under the allocator's own synchronisation.
        unsafe { libmimalloc_sys::mi_collect(false) };
    }
}
