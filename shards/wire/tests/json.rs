//! The validator beside serde_json: the same verdict on generated texts, and the two differences
//! that come from building values instead of reading text.

use queen_wire::json::validate;
use serde::de::IgnoredAny;
use serde_json::Value;

const CASES: u64 = 50_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "10",
    "-1.50",
    "1e9",
    "1E-9",
    "0.1e+1",
    "1e999",
    r#""""#,
    r#""é\u00e9\\""#,
    r#""\ud83d\ude00""#,
    r#""\ud800""#,
    r#""a string of more than thirty-two bytes, so that blocks count""#,
];
const SPACES: &[&str] = &["", "", "", " ", "\n\t\r "];

/// Bytes that do harm wherever they are put.
const BREAKERS: &[u8] = b"{}[],:\"\\0-+.eE x\x00\x1f\x7f\x80\xff";

fn value(random: &mut Random, levels: usize, out: &mut String) {
    *out += SPACES[random.below(SPACES.len())];
    match if levels == 0 { 0 } else { random.below(4) } {
        0 | 1 => *out += SCALARS[random.below(SCALARS.len())],
        kind => {
            *out += if kind == 2 { "[" } else { "{" };
            for index in 0..random.below(4) {
                *out += if index == 0 { "" } else { "," };
                if kind == 3 {
                    *out += "\"k\\n\"";
                    *out += SPACES[random.below(SPACES.len())];
                    *out += ":";
                }
                value(random, levels - 1, out);
            }
            *out += SPACES[random.below(SPACES.len())];
            *out += if kind == 2 { "]" } else { "}" };
        }
    }
    *out += SPACES[random.below(SPACES.len())];
}

/// serde_json, made to skip the value, so that it reads text and builds nothing.
fn serde_takes(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

#[test]
fn texts_from_the_grammar_are_taken_and_broken_ones_judged_as_serde_json_does() {
    let mut refused = 0;
    for seed in 0..CASES {
        let mut random = Random(seed);
        let mut text = String::new();
        value(&mut random, 6, &mut text);
        assert_eq!(validate(text.as_bytes(), 6), Ok(()), "seed {seed}: {text}");
        assert!(serde_takes(text.as_bytes()), "seed {seed}: {text}");

        let mut broken = text.into_bytes();
        let at = random.below(broken.len());
        match random.below(4) {
            0 => broken.truncate(at),
            1 => drop(broken.remove(at)),
            2 => broken.insert(at, BREAKERS[random.below(BREAKERS.len())]),
            _ => broken[at] ^= 1 << random.below(8),
        }
        let expected = serde_takes(&broken);
        refused += u64::from(!expected);
        let verdict = validate(&broken, u32::MAX);
        assert_eq!(verdict.is_ok(), expected, "seed {seed}, {verdict:?}: {}", String::from_utf8_lossy(&broken));
    }
    assert!(refused > CASES / 3, "only {refused} of {CASES} were broken");
}

#[test]
fn what_serde_json_cannot_build_is_still_json_text() {
    // No double holds it, and no string holds half of a pair: the values cannot be, the texts are.
    for text in ["1e999", "-1e999", r#""\ud800""#, r#""\udc00\ud800""#] {
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
        assert_eq!(validate(text.as_bytes(), 1), Ok(()), "{text}");
    }
}
