//! cargo-fuzz target: the query of a durable pop, and times.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::durable_query(data));
