//! cargo-fuzz target: the body of a durable push, serde_json beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::durable_push_body(data));
