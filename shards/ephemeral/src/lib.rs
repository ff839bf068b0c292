//! The in-memory queue engine: pure rules, no I/O, no clock, no runtime.
