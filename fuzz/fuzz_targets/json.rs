//! cargo-fuzz target: a text through the JSON validator, serde_json beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::json(data));
