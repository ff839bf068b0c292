//! The JSON validator, with serde_json as the oracle.

use queen_wire::json::validate;
use serde::de::IgnoredAny;

/// Beyond any input's length: serde_json, which skips values here, has no limit of its own.
const DEPTH_MAX: u32 = u32::MAX;

/// Asserts that the validator takes exactly what serde_json takes.
///
/// serde_json skips the value instead of building it: built, it would refuse halves of surrogate
/// pairs and numbers beyond a double, which are JSON texts. Skipping does not look at UTF-8, so
/// that is asked of the standard library.
pub fn json(data: &[u8]) {
    let expected = std::str::from_utf8(data).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let verdict = validate(data, DEPTH_MAX);
    assert_eq!(verdict.is_ok(), expected, "{verdict:?}: {:?}", String::from_utf8_lossy(data));
    if let Err(error) = verdict {
        assert!(error.offset <= data.len(), "an offset outside the text");
    }
}
