//! No cut between two reads changes what a connection's bytes mean.

use queen_wire::http::Limits;

use crate::connection::read_in_pieces;
use crate::generator::{Random, request};

const CASES: u64 = 20_000;

#[test]
fn any_cut_gives_the_same_requests_and_refusals() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..=random.below(3) {
            bytes.extend(request(&mut random));
        }
        // How soon a head is refused that is not whole does depend on the reads; once it is whole, nothing does.
        bytes.extend(b"\r\n\r\n");
        // Small limits on some, so that reaching one falls on every side of a cut.
        let limits = match random.below(4) {
            0 => Limits { head_bytes_max: 20 + random.below(100), headers_max: random.below(6), body_bytes_max: 20 },
            _ => Limits::default(),
        };
        let whole = read_in_pieces(&bytes, &[], &limits);
        let each_byte: Vec<_> = (0..bytes.len()).collect();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(read_in_pieces(&bytes, &each_byte, &limits), whole, "seed {seed}, byte by byte: {text:?}");
        for _ in 0..4 {
            let cuts = random.cuts(bytes.len());
            assert_eq!(read_in_pieces(&bytes, &cuts, &limits), whole, "seed {seed}, cuts {cuts:?}: {text:?}");
        }
    }
}

#[test]
fn a_long_head_and_a_long_body_may_trickle_in() {
    let value = "v".repeat(12_000);
    let body = "b".repeat(20_000);
    let text = format!("POST / HTTP/1.1\r\nhost: h\r\nx: {value}\r\ncontent-length: 20000\r\n\r\n{body}");
    let each_byte: Vec<_> = (0..text.len()).collect();
    let outcomes = read_in_pieces(text.as_bytes(), &each_byte, &Limits::default());
    assert_eq!(outcomes[0].as_ref().expect("a request").body, body.as_bytes());
}
