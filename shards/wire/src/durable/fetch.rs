//! The body of a fetch: `{"entries": [{"queue", "partition"?, "offset", "maxBytes"?}, …], "maxBytes"?, "maxWaitMs"?,
//! "minBytes"?}`.

use std::borrow::Cow;

use super::push::DEFAULT_PARTITION;
use super::{queue, text};
use crate::body::BodyError;
use crate::body::fields::{self, Least, Member, required};
use crate::json::{JsonError, Scanner};
use crate::name;

/// The most entries of a fetch.
pub const FETCH_ENTRIES_MAX: usize = 1024;

/// Bytes of an entry that names none, and the most that it may name.
const ENTRY_BYTES: u64 = 1024 * 1024;
const ENTRY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Bytes of a call that names none, and the most that it may name.
const CALL_BYTES: u64 = 8 * 1024 * 1024;
const CALL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The longest wait, in milliseconds.
const WAIT_MAX_MS: u64 = 30_000;

/// What a fetch asks for, with defaults and clamps in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// The places to read from: 1 to [`FETCH_ENTRIES_MAX`].
    pub entries: Vec<FetchEntry<'a>>,
    /// Bytes over all entries.
    pub max_bytes: u64,
    /// How long to wait, in milliseconds.
    pub max_wait_ms: u64,
    /// Payload bytes that end the wait.
    pub min_bytes: u64,
}

/// A place to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchEntry<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// The partition's name: `Default` if the entry names none.
    pub partition: Cow<'a, str>,
    /// From this offset on.
    pub offset: u64,
    /// Bytes of this entry.
    pub max_bytes: u64,
}

/// Reads the body of a fetch.
///
/// # Errors
/// [`BodyError`], naming the entry. `depth_max` bounds the nesting of ignored members.
pub fn parse_fetch(body: &[u8], depth_max: u32) -> Result<Fetch<'_>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut listed, mut entries) = (Ok(None), Vec::new());
        let (mut max_bytes, mut max_wait_ms, mut min_bytes) = (Ok(None), Ok(None), Ok(None));
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("entries") {
                entries.clear();
                listed = fields::list_of(scanner, "entries", depth_max, FETCH_ENTRIES_MAX, |scanner, index| {
                    let entry = entry(scanner, depth_max)?;
                    Ok(entry
                        .map(|entry| entries.push(entry))
                        .map_err(|fault| fault.of_part(format!("entries[{index}]").into())))
                })?;
            } else if key.is("maxBytes") {
                max_bytes = fields::integer(scanner, "maxBytes", depth_max, Least::Zero)?;
            } else if key.is("maxWaitMs") {
                max_wait_ms = fields::integer(scanner, "maxWaitMs", depth_max, Least::Zero)?;
            } else if key.is("minBytes") {
                min_bytes = fields::integer(scanner, "minBytes", depth_max, Least::Zero)?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok((|| {
            required(listed, "entries", "an array of objects")?;
            if entries.is_empty() {
                return Err(BodyError::Wrong { field: "entries".into(), expected: "an array of 1 to 1024 objects" });
            }
            Ok(Fetch {
                entries,
                max_bytes: max_bytes?.unwrap_or(CALL_BYTES).min(CALL_BYTES_MAX),
                max_wait_ms: max_wait_ms?.unwrap_or(0).min(WAIT_MAX_MS),
                min_bytes: min_bytes?.unwrap_or(1),
            })
        })())
    })
}

fn entry<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Result<FetchEntry<'a>, BodyError>, JsonError> {
    let (mut queue_name, mut partition, mut offset, mut max_bytes) = (Ok(None), Ok(None), Ok(None), Ok(None));
    fields::members(scanner, depth_max, |scanner, key| {
        if key.is("queue") {
            queue_name = queue(scanner, depth_max)?;
        } else if key.is("partition") {
            partition = partition_name(scanner, depth_max)?;
        } else if key.is("offset") {
            offset = fields::integer(scanner, "offset", depth_max, Least::Zero)?;
        } else if key.is("maxBytes") {
            max_bytes = fields::integer(scanner, "maxBytes", depth_max, Least::Zero)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok((|| {
        Ok(FetchEntry {
            queue: required(queue_name, "queue", "a string")?,
            partition: partition?.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
            offset: required(offset, "offset", "a non-negative integer of at most 64 bits")?,
            max_bytes: max_bytes?.unwrap_or(ENTRY_BYTES).min(ENTRY_BYTES_MAX),
        })
    })())
}

/// A text, or a number that stands for its decimal name.
fn partition_name<'a>(scanner: &mut Scanner<'a>, depth_max: u32) -> Result<Member<Cow<'a, str>>, JsonError> {
    if scanner.peek().is_some_and(|byte| byte == b'-' || byte.is_ascii_digit()) {
        let span = scanner.value(depth_max)?;
        let digits = scanner.text(span);
        return Ok(match digits.parse::<i64>() {
            Ok(number) => Ok(Some(Cow::Owned(number.to_string()))),
            Err(_) => Err(BodyError::Wrong { field: "partition".into(), expected: "a string or a whole number" }),
        });
    }
    text(scanner, "partition", depth_max, name::check_partition)
}

#[cfg(test)]
mod tests {
    use super::{Fetch, FetchEntry, parse_fetch};

    #[test]
    fn a_fetch_has_defaults_for_all_but_queue_and_offset() {
        assert_eq!(
            parse_fetch(br#"{"entries":[{"offset":0,"queue":"q","x":{}}]}"#, 8),
            Ok(Fetch {
                entries: vec![FetchEntry {
                    queue: "q".into(),
                    partition: "Default".into(),
                    offset: 0,
                    max_bytes: 1024 * 1024
                }],
                max_bytes: 8 * 1024 * 1024,
                max_wait_ms: 0,
                min_bytes: 1,
            })
        );
    }

    #[test]
    fn a_fetch_reads_and_clamps_everything() {
        let body = br#"{"minBytes":0,"maxWaitMs":60000,"maxBytes":99999999999,
            "entries":[{"queue":"q","partition":7,"offset":18446744073709551615,"maxBytes":99999999},
            {"queue":"q","partition":"","offset":1,"maxBytes":5}]}"#;
        let fetch = parse_fetch(body, 8).expect("a fetch");
        assert_eq!((fetch.max_bytes, fetch.max_wait_ms, fetch.min_bytes), (64 * 1024 * 1024, 30_000, 0));
        assert_eq!((&*fetch.entries[0].partition, fetch.entries[0].offset), ("7", u64::MAX));
        assert_eq!(fetch.entries[0].max_bytes, 8 * 1024 * 1024);
        assert_eq!((&*fetch.entries[1].partition, fetch.entries[1].max_bytes), ("", 5));
    }

    #[test]
    fn a_fetch_takes_1_to_1024_entries() {
        let body = |count| format!(r#"{{"entries":[{}]}}"#, vec![r#"{"queue":"q","offset":0}"#; count].join(","));
        assert_eq!(parse_fetch(body(1024).as_bytes(), 8).map(|fetch| fetch.entries.len()), Ok(1024));
        for (count, expected) in
            [(0, "`entries` must be an array of 1 to 1024 objects"), (1025, "`entries` has more than 1024 elements")]
        {
            assert_eq!(parse_fetch(body(count).as_bytes(), 8).expect_err("refused").to_string(), expected);
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let whole = "a non-negative integer of at most 64 bits";
        for (entry, expected) in [
            (r#"{"offset":0}"#, "`queue` is missing: it must be a string".to_owned()),
            (r#"{"queue":"q"}"#, format!("`offset` is missing: it must be {whole}")),
            (r#"{"queue":"q","offset":-1}"#, format!("`offset` must be {whole}")),
            (r#"{"queue":"q","offset":"latest"}"#, format!("`offset` must be {whole}")),
            (r#"{"queue":"q","offset":0,"partition":1.5}"#, "`partition` must be a string or a whole number".into()),
            (r#"{"queue":"q","offset":0,"partition":[]}"#, "`partition` must be a string".into()),
            (r#"{"queue":"q","offset":0,"maxBytes":-1}"#, format!("`maxBytes` must be {whole}")),
        ] {
            let body = format!(r#"{{"entries":[{entry}]}}"#);
            let error = parse_fetch(body.as_bytes(), 8).expect_err(&body).to_string();
            assert_eq!(error, format!("in `entries[0]`: {expected}"));
        }
        assert_eq!(
            parse_fetch(b"{}", 8).expect_err("no entries").to_string(),
            "`entries` is missing: it must be an array of objects"
        );
    }
}
