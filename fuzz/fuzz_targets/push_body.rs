//! cargo-fuzz target: the body of a push, serde_json beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::push_body(data));
