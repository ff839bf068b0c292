//! cargo-fuzz target: bytes of a connection through the HTTP decoder.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::http(data));
