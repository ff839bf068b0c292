//! The body of `configure`: `{"queue": …, "options"?: {…}, "namespace"?, "task"?, "mode"?}`.
//!
//! Without an `options` object the members of the body itself are the options. Unlike the ephemeral declaration the
//! list is not closed: an unknown key is ignored, as the durable routes do everywhere.

use std::borrow::Cow;

use super::{SECONDS_MAX, queue};
use crate::body::BodyError;
use crate::body::fields::{self, Member, required};
use crate::json::{JsonError, RawString, Scanner};
use crate::name::NameError;

/// What a call to configure says. What it does not name is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configure<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// `"mode":"replace"`: what is not named goes back to its default.
    pub replace: bool,
    /// `namespace`, among the options or at the top; the options win.
    pub namespace: Option<Given<Cow<'a, str>>>,
    /// `task`, likewise.
    pub task: Option<Given<Cow<'a, str>>>,
    /// The options that are numbers.
    pub numbers: Vec<(Number, Given<i64>)>,
    /// The options that are true or false.
    pub switches: Vec<(Switch, Given<bool>)>,
}

/// A value that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<T> {
    /// Null: back to the default.
    Default,
    /// A value, within the option's range.
    Value(T),
}

/// An option that is a whole number. The unit stands in each one's name or is a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `leaseTime`: seconds, at least 1.
    LeaseS,
    /// `retryLimit`: a count; below 1, the first failure is the last.
    RetryLimit,
    /// `delayedProcessing`: seconds.
    DelayedS,
    /// `windowBuffer`: seconds.
    WindowBufferS,
    /// `minPopWaitTime`: milliseconds, clamped to a minute.
    MinPopWaitMs,
    /// `dedupWindowSeconds`: seconds; a negative value is 0.
    DedupWindowS,
    /// `retentionSeconds`: seconds.
    RetentionS,
    /// `completedRetentionSeconds`: seconds.
    CompletedRetentionS,
    /// `maxWaitTimeSeconds`: seconds.
    MaxWaitS,
    /// `priority`
    Priority,
    /// `ttl`: seconds.
    TtlS,
    /// `maxSize`
    MaxSize,
    /// `retryDelay`: milliseconds.
    RetryDelayMs,
    /// `retentionSinkHoldMaxSeconds`: seconds.
    RetentionSinkHoldMaxS,
}

/// An option that is true or false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `deadLetterQueue`
    DeadLetterQueue,
    /// `dlqAfterMaxRetries`
    DlqAfterMaxRetries,
    /// `encryptionEnabled`
    EncryptionEnabled,
    /// `retentionEnabled`
    RetentionEnabled,
    /// `retentionSinkHold`
    RetentionSinkHold,
}

/// What a number may be.
#[derive(Clone, Copy)]
enum Range {
    /// Anything else is refused, with this sentence.
    Within(i64, i64, &'static str),
    /// Anything else becomes the nearest that is.
    Clamped(i64, i64),
}

const COUNT: Range = Range::Within(0, SECONDS_MAX, "a whole number from 0 to 2147483647");
const FROM_1: Range = Range::Within(1, SECONDS_MAX, "a whole number from 1 to 2147483647");
const SIGNED: Range = Range::Within(-SECONDS_MAX, SECONDS_MAX, "a whole number of at most 2147483647");

/// The longest that a pop lingers for more messages, in milliseconds.
const MIN_POP_WAIT_MAX_MS: i64 = 60_000;

const NUMBERS: [(&str, Number, Range); 14] = [
    ("leaseTime", Number::LeaseS, FROM_1),
    ("retryLimit", Number::RetryLimit, SIGNED),
    ("delayedProcessing", Number::DelayedS, COUNT),
    ("windowBuffer", Number::WindowBufferS, COUNT),
    ("minPopWaitTime", Number::MinPopWaitMs, Range::Clamped(0, MIN_POP_WAIT_MAX_MS)),
    ("dedupWindowSeconds", Number::DedupWindowS, Range::Clamped(0, SECONDS_MAX)),
    ("retentionSeconds", Number::RetentionS, COUNT),
    ("completedRetentionSeconds", Number::CompletedRetentionS, COUNT),
    ("maxWaitTimeSeconds", Number::MaxWaitS, COUNT),
    ("priority", Number::Priority, SIGNED),
    ("ttl", Number::TtlS, COUNT),
    ("maxSize", Number::MaxSize, COUNT),
    ("retryDelay", Number::RetryDelayMs, COUNT),
    ("retentionSinkHoldMaxSeconds", Number::RetentionSinkHoldMaxS, COUNT),
];

const SWITCHES: [(&str, Switch); 5] = [
    ("deadLetterQueue", Switch::DeadLetterQueue),
    ("dlqAfterMaxRetries", Switch::DlqAfterMaxRetries),
    ("encryptionEnabled", Switch::EncryptionEnabled),
    ("retentionEnabled", Switch::RetentionEnabled),
    ("retentionSinkHold", Switch::RetentionSinkHold),
];

/// Reads the body of `configure`.
///
/// # Errors
/// [`BodyError`], naming the option. `depth_max` bounds the nesting of ignored members.
pub fn parse_configure(body: &[u8], depth_max: u32) -> Result<Configure<'_>, BodyError> {
    fields::body(body, depth_max, |scanner| {
        let (mut queue_name, mut replace, mut nested) = (Ok(None), Ok(false), Ok(None));
        let mut top = Options::default();
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("queue") {
                queue_name = queue(scanner, depth_max)?;
            } else if key.is("mode") {
                replace = mode(scanner, depth_max)?;
            } else if key.is("options") {
                nested = fields::part(scanner, "options", depth_max, |scanner| {
                    let mut options = Options::default();
                    fields::members(scanner, depth_max, |scanner, key| options.read(scanner, key, depth_max))?;
                    Ok(Ok(options))
                })?;
            } else {
                return top.read(scanner, key, depth_max);
            }
            Ok(true)
        })?;
        Ok((|| {
            let queue = required(queue_name, "queue", "a string")?;
            let replace = replace?;
            let (namespace, task) = (top.namespace.clone(), top.task.clone());
            let options = nested?.unwrap_or(top);
            Ok(Configure {
                queue,
                replace,
                namespace: options.namespace.or(namespace).transpose()?,
                task: options.task.or(task).transpose()?,
                numbers: in_force(options.numbers, &NUMBERS.map(|(_, number, _)| number))?,
                switches: in_force(options.switches, &SWITCHES.map(|(_, switch)| switch))?,
            })
        })())
    })
}

fn mode(scanner: &mut Scanner<'_>, depth_max: u32) -> Result<Result<bool, BodyError>, JsonError> {
    let wrong = BodyError::Wrong { field: "mode".into(), expected: "\"merge\" or \"replace\"" };
    let Ok(word) = fields::string(scanner, || "mode".into(), depth_max)? else { return Ok(Err(wrong)) };
    Ok(match word {
        None => Ok(false),
        Some(word) if word.is("merge") => Ok(false),
        Some(word) if word.is("replace") => Ok(true),
        Some(_) => Err(wrong),
    })
}

/// One value as it was read.
type Read<T> = Result<Given<T>, BodyError>;

/// Options as they were read, one place for each, so that of an option given twice the last counts.
#[derive(Default)]
struct Options<'a> {
    namespace: Option<Read<Cow<'a, str>>>,
    task: Option<Read<Cow<'a, str>>>,
    numbers: [Option<Read<i64>>; NUMBERS.len()],
    switches: [Option<Read<bool>>; SWITCHES.len()],
}

/// The values that were given, each with what it is a value of.
fn in_force<T, K: Copy, const N: usize>(
    values: [Option<Read<T>>; N],
    keys: &[K; N],
) -> Result<Vec<(K, Given<T>)>, BodyError> {
    let given = keys.iter().zip(values).filter_map(|(&key, value)| Some((key, value?)));
    given.map(|(key, value)| Ok((key, value?))).collect()
}

impl<'a> Options<'a> {
    /// Reads a member, if it is an option.
    fn read(&mut self, scanner: &mut Scanner<'a>, key: RawString<'a>, depth_max: u32) -> Result<bool, JsonError> {
        if let Some(at) = NUMBERS.iter().position(|(name, ..)| key.is(name)) {
            let (name, _, range) = &NUMBERS[at];
            self.numbers[at] = Some(number(scanner, name, range, depth_max)?);
        } else if let Some(at) = SWITCHES.iter().position(|(name, _)| key.is(name)) {
            self.switches[at] = Some(given(fields::boolean(scanner, SWITCHES[at].0, depth_max)?));
        } else if key.is("namespace") {
            self.namespace = Some(label(scanner, "namespace", depth_max)?);
        } else if key.is("task") {
            self.task = Some(label(scanner, "task", depth_max)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn given<T>(member: Member<T>) -> Read<T> {
    member.map(|value| value.map_or(Given::Default, Given::Value))
}

/// A whole number, or its digits as text.
fn number(
    scanner: &mut Scanner<'_>,
    name: &'static str,
    range: &Range,
    depth_max: u32,
) -> Result<Read<i64>, JsonError> {
    let span = scanner.value(depth_max)?;
    let text = scanner.text(span);
    if text == "null" {
        return Ok(Ok(Given::Default));
    }
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    // A plus sign is no JSON number, and no more of one between quotes.
    let value = if digits.starts_with('+') { None } else { digits.parse::<i64>().ok() };
    let wrong = |expected| Err(BodyError::Wrong { field: name.into(), expected });
    Ok(match (*range, value) {
        (Range::Clamped(least, most), Some(value)) => Ok(Given::Value(value.clamp(least, most))),
        (Range::Clamped(..), None) => wrong("a whole number"),
        (Range::Within(least, most, expected), value) => match value {
            Some(value) if (least..=most).contains(&value) => Ok(Given::Value(value)),
            _ => wrong(expected),
        },
    })
}

/// A namespace or a task: any text but for U+0000.
fn label<'a>(scanner: &mut Scanner<'a>, field: &'static str, depth_max: u32) -> Result<Read<Cow<'a, str>>, JsonError> {
    let raw = fields::string(scanner, || field.into(), depth_max)?;
    Ok(given(raw.and_then(|raw| {
        let Some(raw) = raw else { return Ok(None) };
        let text = raw.decode().map_err(|_| BodyError::Name { field, fault: NameError::LoneSurrogate })?;
        super::pop::check_label(field, &text)?;
        Ok(Some(text))
    })))
}

#[cfg(test)]
mod tests {
    use super::{Configure, Given, Number, Switch, parse_configure};

    fn configure(body: &str) -> Configure<'_> {
        parse_configure(body.as_bytes(), 8).expect(body)
    }

    fn message(body: &str) -> String {
        parse_configure(body.as_bytes(), 8).expect_err(body).to_string()
    }

    #[test]
    fn only_the_queue_is_required() {
        let body = configure(r#"{"queue":"q"}"#);
        assert_eq!((&*body.queue, body.replace, body.namespace, body.task), ("q", false, None, None));
        assert_eq!((body.numbers, body.switches), (vec![], vec![]));
        assert_eq!(message("{}"), "`queue` is missing: it must be a string");
        assert_eq!(message(r#"{"queue":7}"#), "`queue` must be a string");
    }

    #[test]
    fn without_an_options_object_the_top_has_the_options() {
        for body in [
            r#"{"queue":"q","leaseTime":5,"deadLetterQueue":false,"other":[1]}"#,
            r#"{"queue":"q","options":null,"leaseTime":5,"deadLetterQueue":false}"#,
            r#"{"leaseTime":"x","queue":"q","options":{"leaseTime":1,"leaseTime":5,"deadLetterQueue":false}}"#,
        ] {
            let read = configure(body);
            assert_eq!(read.numbers, [(Number::LeaseS, Given::Value(5))], "{body}");
            assert_eq!(read.switches, [(Switch::DeadLetterQueue, Given::Value(false))], "{body}");
        }
    }

    #[test]
    fn a_namespace_among_the_options_wins() {
        let read = configure(r#"{"queue":"q","namespace":"top","task":"t","options":{"namespace":"n"}}"#);
        assert_eq!(read.namespace, Some(Given::Value("n".into())));
        assert_eq!(read.task, Some(Given::Value("t".into())));
        assert_eq!(configure(r#"{"queue":"q","options":{"task":null}}"#).task, Some(Given::Default));
    }

    #[test]
    fn numbers_come_as_numbers_or_as_text_and_null_is_the_default() {
        let read = configure(r#"{"queue":"q","options":{"ttl":"12","maxSize":null,"retryLimit":-1,"priority":"-3"}}"#);
        assert_eq!(
            read.numbers,
            [
                (Number::RetryLimit, Given::Value(-1)),
                (Number::Priority, Given::Value(-3)),
                (Number::TtlS, Given::Value(12)),
                (Number::MaxSize, Given::Default),
            ]
        );
    }

    #[test]
    fn two_options_are_clamped() {
        for (value, wait, dedup) in [("-5", 0, 0), ("90000", 60_000, 90_000), ("\"7\"", 7, 7)] {
            let body = format!(r#"{{"queue":"q","minPopWaitTime":{value},"dedupWindowSeconds":{value}}}"#);
            assert_eq!(
                configure(&body).numbers,
                [(Number::MinPopWaitMs, Given::Value(wait)), (Number::DedupWindowS, Given::Value(dedup))]
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (option, expected) in [
            (r#""leaseTime":0"#, "`leaseTime` must be a whole number from 1 to 2147483647"),
            (r#""leaseTime":1.5"#, "`leaseTime` must be a whole number from 1 to 2147483647"),
            (r#""retryLimit":"abc""#, "`retryLimit` must be a whole number of at most 2147483647"),
            (r#""windowBuffer":-1"#, "`windowBuffer` must be a whole number from 0 to 2147483647"),
            (r#""ttl":2147483648"#, "`ttl` must be a whole number from 0 to 2147483647"),
            (r#""ttl":"+1""#, "`ttl` must be a whole number from 0 to 2147483647"),
            (r#""minPopWaitTime":true"#, "`minPopWaitTime` must be a whole number"),
            (r#""retentionEnabled":1"#, "`retentionEnabled` must be true or false"),
            (r#""namespace":1"#, "`namespace` must be a string"),
            (r#""task":"\u0000""#, "`task` holds a control character"),
            (r#""options":[]"#, "`options` must be an object"),
            (r#""mode":"other""#, "`mode` must be \"merge\" or \"replace\""),
            (r#""mode":1"#, "`mode` must be \"merge\" or \"replace\""),
        ] {
            assert_eq!(message(&format!(r#"{{"queue":"q",{option}}}"#)), expected);
        }
    }

    #[test]
    fn the_mode_is_merge_unless_it_says_replace() {
        for (mode, replace) in [("null", false), ("\"merge\"", false), ("\"replace\"", true)] {
            assert_eq!(configure(&format!(r#"{{"queue":"q","mode":{mode}}}"#)).replace, replace);
        }
    }
}
