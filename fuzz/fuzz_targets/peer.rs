//! cargo-fuzz target: bytes on a peer link, before its ends have proved themselves and after.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::peer(data));
