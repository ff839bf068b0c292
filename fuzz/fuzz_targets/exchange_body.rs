//! cargo-fuzz target: the bodies of request and exchange, serde_json beside them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::exchange_body(data));
