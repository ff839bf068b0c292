//! The body of a lease's extension: `{"seconds"?: …}`, of which nothing is ever refused.

use super::SECONDS_MAX;
use crate::body::fields;

/// Seconds of an extension that names none.
pub const EXTEND_DEFAULT_S: u64 = 60;

/// The seconds of an extension, 1 to [`SECONDS_MAX`]; [`EXTEND_DEFAULT_S`] where the body has no number to read.
pub fn parse_extend(body: &[u8], depth_max: u32) -> u64 {
    let read = fields::body(body, depth_max, |scanner| {
        let mut seconds = None;
        fields::members(scanner, depth_max, |scanner, key| {
            if !key.is("seconds") {
                return Ok(false);
            }
            let span = scanner.value(depth_max)?;
            seconds = scanner.text(span).parse::<i64>().ok();
            Ok(true)
        })?;
        Ok(Ok(seconds))
    });
    match read {
        Ok(Some(seconds)) => seconds.clamp(1, SECONDS_MAX).unsigned_abs(),
        Ok(None) | Err(_) => EXTEND_DEFAULT_S,
    }
}

#[cfg(test)]
mod tests {
    use super::parse_extend;

    #[test]
    fn an_extension_is_its_seconds_and_a_minute_where_they_cannot_be_read() {
        for (body, expected) in [
            (r#"{"seconds":120}"#, 120),
            (r#" {"x":[{}],"seconds":1} "#, 1),
            (r#"{"seconds":0}"#, 1),
            (r#"{"seconds":-5}"#, 1),
            (r#"{"seconds":9000000000}"#, 2_147_483_647),
            (r#"{"seconds":"120"}"#, 60),
            (r#"{"seconds":1.5}"#, 60),
            (r#"{"seconds":null}"#, 60),
            ("{}", 60),
            ("", 60),
            ("[120]", 60),
            (r#"{"seconds":120"#, 60),
        ] {
            assert_eq!(parse_extend(body.as_bytes(), 8), expected, "{body}");
        }
    }
}
