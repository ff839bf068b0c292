//! cargo-fuzz target: a text through the parser of message ids.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::message_id(data));
