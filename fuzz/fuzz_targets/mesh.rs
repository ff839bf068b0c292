//! cargo-fuzz target: bytes as a mesh, as signed claims and as an issuer's keys, jsonwebmesh beside them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queen_fuzz::mesh(data));
