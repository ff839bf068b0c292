//! What a request target says: path segments and query parameters, percent-decoded, and the query
//! of a pop.

use std::borrow::Cow;

use crate::body::BodyError;
use crate::name;

/// Why a percent-encoded text cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A percent sign without two hexadecimal digits behind it.
    #[error("has a malformed percent escape")]
    Escape,
    /// Escapes that make up bytes that are no UTF-8.
    #[error("is not UTF-8")]
    Utf8,
}

/// Decodes one segment of a path. A plus sign stands for itself there.
///
/// # Errors
/// [`TargetError`] for an escape that cannot be read.
///
/// ```
/// use queen_wire::target::decode_segment;
/// assert_eq!(decode_segment("a%2Fb+c").unwrap(), "a/b+c");
/// ```
pub fn decode_segment(raw: &str) -> Result<Cow<'_, str>, TargetError> {
    decode(raw, Plus::Itself)
}

/// What a plus sign stands for: in a query, as forms write them, for a space.
#[derive(Clone, Copy, PartialEq)]
enum Plus {
    Itself,
    Space,
}

fn decode(raw: &str, plus: Plus) -> Result<Cow<'_, str>, TargetError> {
    let is_encoded = |byte| byte == b'%' || (byte == b'+' && plus == Plus::Space);
    let Some(first) = raw.bytes().position(is_encoded) else {
        return Ok(Cow::Borrowed(raw));
    };
    let mut decoded = Vec::with_capacity(raw.len());
    decoded.extend_from_slice(&raw.as_bytes()[..first]);
    let mut rest = &raw.as_bytes()[first..];
    while let [byte, behind @ ..] = rest {
        rest = behind;
        decoded.push(match byte {
            b'%' => {
                let [high, low, behind @ ..] = rest else { return Err(TargetError::Escape) };
                rest = behind;
                hex_digit(*high)? << 4 | hex_digit(*low)?
            }
            b'+' if plus == Plus::Space => b' ',
            itself => *itself,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| TargetError::Utf8)
}

fn hex_digit(byte: u8) -> Result<u8, TargetError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(TargetError::Escape),
    }
}

/// The parameters of a query, in order: `name=value` between ampersands. A parameter without an
/// equals sign has the empty value; empty pieces are skipped.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    rest: &'a str,
}

impl<'a> Query<'a> {
    /// The parameters of a query as [`crate::http::Request::query`] has it.
    pub fn new(query: Option<&'a str>) -> Self {
        Self { rest: query.unwrap_or_default() }
    }
}

impl<'a> Query<'a> {
    /// The value of a parameter that may be given once; `None` if it is not given.
    ///
    /// # Errors
    /// [`BodyError::Repeated`] if it is given again, [`BodyError::Encoding`] for any parameter
    /// whose escapes cannot be read.
    pub fn once(&self, parameter: &'static str) -> Result<Option<Cow<'a, str>>, BodyError> {
        let mut found = None;
        for pair in self.clone() {
            let (name, value) = pair?;
            if name == parameter {
                once(&mut found, parameter, value)?;
            }
        }
        Ok(found)
    }
}

impl<'a> Iterator for Query<'a> {
    /// A parameter's name and value, or [`BodyError::Encoding`] that names it.
    type Item = Result<(Cow<'a, str>, Cow<'a, str>), BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest = self.rest.trim_start_matches('&');
        if self.rest.is_empty() {
            return None;
        }
        let (piece, rest) = self.rest.split_once('&').unwrap_or((self.rest, ""));
        self.rest = rest;
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let decode =
            |text| decode(text, Plus::Space).map_err(|fault| BodyError::Encoding { parameter: name.to_owned(), fault });
        Some(decode(name).and_then(|name| Ok((name, decode(value)?))))
    }
}

/// The most messages of one pop; a larger `batch` counts as this.
pub const BATCH_MAX: u32 = 10_000;
/// The wait of a pop that names none, in milliseconds.
pub const TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// The longest wait of a pop, in milliseconds; a larger `timeout` counts as this.
pub const TIMEOUT_MAX_MS: u64 = 300_000;

/// What a pop asks for, in its query or in an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopQuery<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// The partition's name; `None` is any partition.
    pub partition: Option<Cow<'a, str>>,
    /// The consumer group's name; `None` is the queue mode.
    pub group: Option<Cow<'a, str>>,
    /// The most messages wanted: 1 to [`BATCH_MAX`].
    pub batch: u32,
    /// Whether to wait for a message.
    pub wait: bool,
    /// How long to wait, in milliseconds, at most [`TIMEOUT_MAX_MS`]. 0 does not wait.
    pub timeout_ms: u64,
    /// Whether delivery counts as the ack.
    pub auto_ack: bool,
}

impl<'a> PopQuery<'a> {
    /// Reads the query of a pop. Parameters that a pop does not have are ignored.
    ///
    /// # Errors
    /// [`BodyError`], naming the parameter: one given twice, a boolean other than `true` and
    /// `false`, an integer that is not digits alone or overflows 64 bits, a `batch` of 0, a name
    /// that is none, an escape that cannot be read, or no `queue`.
    pub fn parse(query: Option<&'a str>) -> Result<Self, BodyError> {
        let (mut queue, mut partition, mut group) = (None, None, None);
        let (mut batch, mut wait, mut timeout_ms, mut auto_ack) = (None, None, None, None);
        for parameter in Query::new(query) {
            let (parameter, value) = parameter?;
            match &*parameter {
                "queue" => once(&mut queue, "queue", name(value, "queue")?)?,
                "partition" => once(&mut partition, "partition", name(value, "partition")?)?,
                "group" => once(&mut group, "group", name(value, "group")?)?,
                "batch" => once(&mut batch, "batch", positive(&value, "batch")?)?,
                "wait" => once(&mut wait, "wait", boolean(&value, "wait")?)?,
                "timeout" => once(&mut timeout_ms, "timeout", integer(&value, "timeout")?)?,
                "autoAck" => once(&mut auto_ack, "autoAck", boolean(&value, "autoAck")?)?,
                _ => {}
            }
        }
        let missing = BodyError::Missing { field: "queue".into(), expected: "a query parameter with the queue's name" };
        Ok(Self {
            queue: queue.ok_or(missing)?,
            partition,
            group,
            batch: batch_in_force(batch),
            wait: wait.unwrap_or(false),
            timeout_ms: timeout_in_force(timeout_ms),
            auto_ack: auto_ack.unwrap_or(false),
        })
    }
}

/// The batch of a pop that asks for this many.
pub(crate) fn batch_in_force(asked: Option<u64>) -> u32 {
    asked.map_or(1, |batch| u32::try_from(batch).unwrap_or(BATCH_MAX).min(BATCH_MAX))
}

/// How long a pop or a request waits that asks for this long, in milliseconds.
pub(crate) fn timeout_in_force(asked_ms: Option<u64>) -> u64 {
    asked_ms.unwrap_or(TIMEOUT_DEFAULT_MS).min(TIMEOUT_MAX_MS)
}

pub(crate) fn once<T>(place: &mut Option<T>, parameter: &'static str, value: T) -> Result<(), BodyError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(BodyError::Repeated { parameter }),
    }
}

fn name<'a>(value: Cow<'a, str>, parameter: &'static str) -> Result<Cow<'a, str>, BodyError> {
    name::check(parameter, &value).map(|()| value)
}

pub(crate) fn boolean(value: &str, parameter: &'static str) -> Result<bool, BodyError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(parameter, "true or false")),
    }
}

pub(crate) fn integer(value: &str, parameter: &'static str) -> Result<u64, BodyError> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| value.parse().ok())
        .flatten()
        .ok_or_else(|| wrong(parameter, "a non-negative integer of at most 64 bits"))
}

fn positive(value: &str, parameter: &'static str) -> Result<u64, BodyError> {
    match integer(value, parameter) {
        Ok(value @ 1..) => Ok(value),
        _ => Err(wrong(parameter, "an integer from 1 on, of at most 64 bits")),
    }
}

fn wrong(parameter: &'static str, expected: &'static str) -> BodyError {
    BodyError::Wrong { field: parameter.into(), expected }
}

#[cfg(test)]
mod tests {
    use super::{PopQuery, Query, TargetError, decode_segment};

    fn message(query: &str) -> String {
        PopQuery::parse(Some(query)).expect_err(query).to_string()
    }

    #[test]
    fn a_segment_is_percent_decoded_and_keeps_its_plus() {
        for (raw, expected) in
            [("", ""), ("plain", "plain"), ("a%20b%2fc", "a b/c"), ("%e2%82%AC", "€"), ("a+b", "a+b"), ("é", "é")]
        {
            assert_eq!(decode_segment(raw).as_deref(), Ok(expected), "{raw}");
        }
        for raw in ["%", "%4", "%zz", "%+1", "a%2"] {
            assert_eq!(decode_segment(raw), Err(TargetError::Escape), "{raw}");
        }
        for raw in ["%ff", "%ed%a0%80", "%c3"] {
            assert_eq!(decode_segment(raw), Err(TargetError::Utf8), "{raw}");
        }
    }

    #[test]
    fn a_query_is_its_parameters_in_order() {
        let pairs: Vec<_> = Query::new(Some("&a=1&&b&c=x+y%26=z&a="))
            .map(|pair| pair.expect("decodes"))
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        assert_eq!(pairs, ["a:1", "b:", "c:x y&=z", "a:"]);
        assert_eq!(Query::new(None).count(), 0);
        assert_eq!(Query::new(Some("")).count(), 0);
    }

    #[test]
    fn one_parameter_is_found_whatever_stands_around_it() {
        let query = Query::new(Some("a=1&gr%6fup=g+h&b=2"));
        assert_eq!(query.once("group"), Ok(Some("g h".into())));
        assert_eq!(query.once("limit"), Ok(None));
        let twice = Query::new(Some("group=g&group=g")).once("group").expect_err("given twice");
        assert_eq!(twice.to_string(), "the query parameter `group` is given more than once");
        assert!(Query::new(Some("group=g&x=%")).once("group").is_err());
    }

    #[test]
    fn a_pop_has_defaults_for_all_but_its_queue() {
        assert_eq!(
            PopQuery::parse(Some("queue=q&unknown=%41")),
            Ok(PopQuery {
                queue: "q".into(),
                partition: None,
                group: None,
                batch: 1,
                wait: false,
                timeout_ms: 30_000,
                auto_ack: false,
            })
        );
    }

    #[test]
    fn a_pop_reads_every_parameter() {
        let query = "autoAck=true&timeout=0&wait=true&batch=7&group=g+1&partition=room%2D7&%71ueue=q";
        assert_eq!(
            PopQuery::parse(Some(query)),
            Ok(PopQuery {
                queue: "q".into(),
                partition: Some("room-7".into()),
                group: Some("g 1".into()),
                batch: 7,
                wait: true,
                timeout_ms: 0,
                auto_ack: true,
            })
        );
    }

    #[test]
    fn large_numbers_are_clamped() {
        let pop = PopQuery::parse(Some("queue=q&batch=18446744073709551615&timeout=300001"));
        let pop = pop.expect("both are numbers");
        assert_eq!((pop.batch, pop.timeout_ms), (10_000, 300_000));
    }

    #[test]
    fn a_parameter_that_is_wrong_is_named() {
        for (query, expected) in [
            ("", "`queue` is missing: it must be a query parameter with the queue's name"),
            ("queue=", "`queue` is empty"),
            ("queue=a%00", "`queue` holds a control character"),
            ("queue=q&partition=", "`partition` is empty"),
            ("queue=q&queue=q", "the query parameter `queue` is given more than once"),
            ("queue=q&wait=true&wait=true", "the query parameter `wait` is given more than once"),
            ("queue=q&wait=1", "`wait` must be true or false"),
            ("queue=q&wait", "`wait` must be true or false"),
            ("queue=q&autoAck=True", "`autoAck` must be true or false"),
            ("queue=q&timeout=-1", "`timeout` must be a non-negative integer of at most 64 bits"),
            ("queue=q&timeout=", "`timeout` must be a non-negative integer of at most 64 bits"),
            ("queue=q&timeout=+1", "`timeout` must be a non-negative integer of at most 64 bits"),
            ("queue=q&timeout=18446744073709551616", "`timeout` must be a non-negative integer of at most 64 bits"),
            ("queue=q&batch=0", "`batch` must be an integer from 1 on, of at most 64 bits"),
            ("queue=q&batch=x", "`batch` must be an integer from 1 on, of at most 64 bits"),
            ("queue=%ff", "the query parameter `queue` is not UTF-8"),
            ("queue=q&x=%g", "the query parameter `x` has a malformed percent escape"),
        ] {
            assert_eq!(message(query), expected, "{query}");
        }
    }
}
