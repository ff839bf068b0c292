//! Lanes between cores, wake-ups, the slice hash, placement, and the one door to the runtime.
