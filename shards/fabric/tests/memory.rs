//! Memory that was freed leaves the process. A program of its own: the allocator and what is resident are the process's.
#![cfg(not(loom))]

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use mimalloc::MiMalloc;
use queen_fabric::memory::GiveBack;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// As a queue keeps messages: in many small pieces, 100 MiB in all.
const PIECES: usize = 400_000;
const PIECE_BYTES: usize = 256;

/// It is given back within a second or two; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = statm.split(' ').nth(1).expect("a second field").parse().expect("a number");
    pages * rustix::param::page_size()
}

#[test]
fn what_was_freed_leaves_the_process_while_nothing_else_happens() {
    let _give_back = GiveBack::start().expect("a thread");
    let empty = resident_bytes();
    let pieces: Vec<Box<[u8]>> = (0..PIECES).map(|_| vec![1; PIECE_BYTES].into()).collect();
    let full = resident_bytes();
    assert!(full - empty >= PIECES * PIECE_BYTES, "{full} bytes are resident, {empty} were before");
    drop(pieces);
    let deadline = Instant::now() + PATIENCE;
    while resident_bytes() > empty + (full - empty) / 4 {
        assert!(Instant::now() < deadline, "of {full} bytes {} are still resident", resident_bytes());
        thread::sleep(Duration::from_millis(50));
    }
}
