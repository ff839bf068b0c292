//! The body of `partitions/changed`: `{"entries": [{"queue", "since"?, "after"?, "limit"?}, …]}`.

use std::borrow::Cow;

use super::{free_text, queue};
use crate::body::BodyError;
use crate::body::fields::{self, required};
use crate::json::{JsonError, Scanner};
use crate::time;

/// The most entries of a call.
pub const CHANGED_ENTRIES_MAX: usize = 1024;

/// The rows of an entry that names no limit, and the most that it may name.
pub const CHANGED_ROWS_MAX: u32 = 1000;

/// A queue whose partitions are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedEntry<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// Partitions written to at or after this, in microseconds since 1970; `None` is all.
    pub since_us: Option<i64>,
    /// What the page before gave as `next`.
    pub after: Option<Cow<'a, str>>,
    /// The most rows: 1 to [`CHANGED_ROWS_MAX`].
    pub limit: u32,
}

/// Reads the body of `partitions/changed`: its entries, in order.
///
/// # Errors
/// [`BodyError`], naming the entry. `depth_max` bounds the nesting of ignored members.
pub fn parse_changed(body: &[u8], depth_max: u32) -> Result<Vec<ChangedEntry<'_>>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut listed, mut entries) = (Ok(None), Vec::new());
        fields::members(scanner, depth_max, |scanner, key| {
            if !key.is("entries") {
                return Ok(false);
            }
            entries.clear();
            listed = fields::list_of(scanner, "entries", depth_max, CHANGED_ENTRIES_MAX, |scanner, index| {
                let entry = entry(scanner, depth_max)?;
                Ok(entry
                    .map(|entry| entries.push(entry))
                    .map_err(|fault| fault.of_part(format!("entries[{index}]").into())))
            })?;
            Ok(true)
        })?;
        Ok(required(listed, "entries", "an array of objects").map(|_| entries))
    })
}

fn entry<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Result<ChangedEntry<'a>, BodyError>, JsonError> {
    let (mut queue_name, mut since, mut after, mut limit) = (Ok(None), Ok(None), Ok(None), Ok(None));
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue_name = queue(scanner, depth_max)?;
        } else if key.is("since") {
            since = free_text(scanner, "since", depth_max)?;
        } else if key.is("after") {
            after = free_text(scanner, "after", depth_max)?;
        } else if key.is("limit") {
            let span = scanner.value(depth_max)?;
            limit = match scanner.text(span) {
                "null" => Ok(None),
                digits => digits
                    .parse::<i64>()
                    .map(Some)
                    .map_err(|_| BodyError::Wrong { field: "limit".into(), expected: "a whole number" }),
            };
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        let since_us = match since? {
            None => None,
            Some(text) => Some(time::parse_us(&text).ok_or(BodyError::Wrong {
                field: "since".into(),
                expected: "a time such as 2026-11-30T02:47:04.278123Z",
            })?),
        };
        let limit = limit?.unwrap_or(CHANGED_ROWS_MAX.into()).clamp(1, CHANGED_ROWS_MAX.into());
        Ok(ChangedEntry {
            queue: required(queue_name, "queue", "a string")?,
            since_us,
            after: after?,
            limit: limit as u32,
        })
    })())
}

#[cfg(test)]
mod tests {
    use super::{ChangedEntry, parse_changed};

    #[test]
    fn an_entry_has_defaults_for_all_but_its_queue() {
        assert_eq!(
            parse_changed(br#"{"entries":[{"queue":"q","since":null}]}"#, 8),
            Ok(vec![ChangedEntry { queue: "q".into(), since_us: None, after: None, limit: 1000 }])
        );
        assert_eq!(parse_changed(br#"{"entries":[]}"#, 8), Ok(vec![]));
    }

    #[test]
    fn an_entry_reads_everything_and_clamps_its_limit() {
        for (limit, expected) in [("0", 1), ("-7", 1), ("17", 17), ("5000", 1000)] {
            let body = format!(r#"{{"entries":[{{"limit":{limit},"after":"c","since":"1970-01-02","queue":"q"}}]}}"#);
            assert_eq!(
                parse_changed(body.as_bytes(), 8),
                Ok(vec![ChangedEntry {
                    queue: "q".into(),
                    since_us: Some(86_400_000_000),
                    after: Some("c".into()),
                    limit: expected
                }])
            );
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (entry, expected) in [
            ("{}", "in `entries[0]`: `queue` is missing: it must be a string"),
            (
                r#"{"queue":"q","since":"yesterday"}"#,
                "in `entries[0]`: `since` must be a time such as 2026-11-30T02:47:04.278123Z",
            ),
            (r#"{"queue":"q","since":5}"#, "in `entries[0]`: `since` must be a string"),
            (r#"{"queue":"q","after":5}"#, "in `entries[0]`: `after` must be a string"),
            (r#"{"queue":"q","limit":1.5}"#, "in `entries[0]`: `limit` must be a whole number"),
            ("5", "`entries[0]` must be an object"),
        ] {
            let body = format!(r#"{{"entries":[{entry}]}}"#);
            assert_eq!(parse_changed(body.as_bytes(), 8).expect_err(&body).to_string(), expected);
        }
        let many = format!(r#"{{"entries":[{}]}}"#, vec![r#"{"queue":"q"}"#; 1025].join(","));
        assert_eq!(
            parse_changed(many.as_bytes(), 8).expect_err("too many").to_string(),
            "`entries` has more than 1024 elements"
        );
    }
}
