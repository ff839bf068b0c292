//! cargo-fuzz target: the other bodies of the durable routes, serde_json beside them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::durable_bodies(data));
