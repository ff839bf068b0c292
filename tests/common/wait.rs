//! Waiting for a condition instead of sleeping, and names that no other test uses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// Asks `probe` again and again until it answers `Some`, for at most [`PATIENCE`].
///
/// # Panics
/// When the time is over, naming `what` was waited for.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A name that starts with `stem` and that this process has not used before.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
