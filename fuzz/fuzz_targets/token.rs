//! cargo-fuzz target: bytes as a token, as signed claims and as an issuer's keys, jsonwebtoken beside them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::token(data));
