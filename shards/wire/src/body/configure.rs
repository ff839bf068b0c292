//! The body of `configure`: `{"queue": …, "options": {…}}`, and the options by themselves, as a
//! stored declaration has them.
//!
//! The list of options is closed, for a misspelled bound would otherwise give a queue that looks
//! configured and behaves like the default. Values are kept as they were sent: what 0 means and
//! what the node's ceilings make of a number is for the engine to say.

use super::BodyError;
use super::fields::{self, Least, Member, required};
use crate::json::{JsonError, RawString, Scanner};

/// The options that exist, for the message to whoever names another.
const OPTIONS: &str = "maxBytes, maxLength, policy, ttlSeconds, leaseSeconds, retryLimit, windowBuffer";

/// The members of `windowBuffer`, likewise.
const WINDOW_BUFFER_OPTIONS: &str = "ms, count";

/// How deep the options of a declaration are nested that was taken: `windowBuffer` is an object.
const OPTIONS_DEPTH: u32 = 2;

/// A declaration of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigureBody {
    /// The queue's name.
    pub queue: String,
    /// The value of `options` exactly as it was sent, to store and to echo; `{}` if there is none.
    pub options_text: String,
    /// What that text says.
    pub options: Options,
}

/// The options as they were sent; what is `None` was not given, or given as null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `maxBytes`: the bound on payload bytes.
    pub max_bytes: Option<u64>,
    /// `maxLength`: the bound on messages.
    pub max_length: Option<u64>,
    /// `policy`: what happens at a bound.
    pub policy: Option<Policy>,
    /// `ttlSeconds`: the age at which a message is dropped.
    pub ttl_seconds: Option<u64>,
    /// `leaseSeconds`: how long a delivered message waits for its ack.
    pub lease_seconds: Option<u64>,
    /// `retryLimit`: deliveries of a message before it is dropped.
    pub retry_limit: Option<u64>,
    /// `windowBuffer`: how long a waiting pop gathers messages.
    pub window_buffer: Option<WindowBuffer>,
}

/// What a push meets at a bound of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `reject`: it is refused.
    Reject,
    /// `dropOldest`: it is taken and the oldest messages go.
    DropOldest,
}

/// The option `windowBuffer`. A member that is not given is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowBuffer {
    /// The longest wait behind the first message, in milliseconds.
    pub ms: u64,
    /// The number of messages that ends the wait.
    pub count: u64,
}

/// Reads the body of `configure`.
///
/// # Errors
/// [`BodyError`]; an option that does not exist is answered with those that do.
/// `depth_max` bounds the nesting of ignored members.
pub fn parse_configure(body: &[u8], depth_max: u32) -> Result<ConfigureBody, BodyError> {
    let (mut queue, mut options, mut options_text) = (Ok(None), Ok(None), None);
    fields::body(body, depth_max, |scanner| {
        fields::members(scanner, depth_max, |scanner, key| {
            if key.is("queue") {
                queue = fields::name(scanner, "queue", depth_max)?;
            } else if key.is("options") {
                let start = scanner.offset();
                options = read_options(scanner, depth_max)?;
                options_text = Some(start..scanner.offset());
            } else {
                return Ok(false);
            }
            Ok(true)
        })
        .map(Ok)
    })?;
    let queue = required(queue, "queue", "a string")?.into_owned();
    let (options, options_text) = match (options?, options_text) {
        (Some(options), Some(span)) => (options, String::from_utf8_lossy(&body[span]).into_owned()),
        _ => (Options::default(), "{}".to_owned()),
    };
    Ok(ConfigureBody { queue, options_text, options })
}

/// Reads the options of a declaration as [`ConfigureBody::options_text`] has them.
///
/// # Errors
/// As [`parse_configure`], for a text that it would not have taken.
pub fn parse_options(text: &str) -> Result<Options, BodyError> {
    let mut scanner = Scanner::new(text.as_bytes())?;
    let options = read_options(&mut scanner, OPTIONS_DEPTH)?;
    scanner.end()?;
    Ok(options?.unwrap_or_default())
}

fn read_options(scanner: &mut Scanner<'_>, depth_max: u32) -> Result<Member<Options>, JsonError> {
    if scanner.peek() != Some(b'{') {
        return fields::null_or(scanner, depth_max, || wrong("options", "an object"));
    }
    // A member per option, so that of an option given twice the last counts.
    let (mut max_bytes, mut max_length, mut policy) = (Ok(None), Ok(None), Ok(None));
    let (mut ttl_seconds, mut lease_seconds) = (Ok(None), Ok(None));
    let (mut retry_limit, mut window_buffer) = (Ok(None), Ok(None));
    let mut unknown = Ok(());
    scanner.members(|scanner, key| {
        let mut read = |field| fields::integer(scanner, field, depth_max, Least::Zero);
        if key.is("maxBytes") {
            max_bytes = read("options.maxBytes")?;
        } else if key.is("maxLength") {
            max_length = read("options.maxLength")?;
        } else if key.is("ttlSeconds") {
            ttl_seconds = read("options.ttlSeconds")?;
        } else if key.is("leaseSeconds") {
            lease_seconds = read("options.leaseSeconds")?;
        } else if key.is("retryLimit") {
            retry_limit = read("options.retryLimit")?;
        } else if key.is("policy") {
            policy = read_policy(scanner, depth_max)?;
        } else if key.is("windowBuffer") {
            window_buffer = read_window_buffer(scanner, depth_max)?;
        } else {
            unknown = Err(unknown_option(key, OPTIONS));
            scanner.value(depth_max)?;
        }
        Ok(())
    })?;
    Ok((|| {
        unknown?;
        Ok(Some(Options {
            max_bytes: max_bytes?,
            max_length: max_length?,
            policy: policy?,
            ttl_seconds: ttl_seconds?,
            lease_seconds: lease_seconds?,
            retry_limit: retry_limit?,
            window_buffer: window_buffer?,
        }))
    })())
}

fn read_window_buffer(scanner: &mut Scanner<'_>, depth_max: u32) -> Result<Member<WindowBuffer>, JsonError> {
    if scanner.peek() != Some(b'{') {
        return fields::null_or(scanner, depth_max, || wrong("options.windowBuffer", "an object"));
    }
    let (mut ms, mut count, mut unknown) = (Ok(None), Ok(None), Ok(()));
    scanner.members(|scanner, key| {
        if key.is("ms") {
            ms = fields::integer(scanner, "options.windowBuffer.ms", depth_max, Least::Zero)?;
        } else if key.is("count") {
            count = fields::integer(scanner, "options.windowBuffer.count", depth_max, Least::Zero)?;
        } else {
            unknown = Err(unknown_option(key, WINDOW_BUFFER_OPTIONS));
            scanner.value(depth_max)?;
        }
        Ok(())
    })?;
    Ok((|| {
        unknown?;
        Ok(Some(WindowBuffer { ms: ms?.unwrap_or(0), count: count?.unwrap_or(0) }))
    })())
}

fn read_policy(scanner: &mut Scanner<'_>, depth_max: u32) -> Result<Member<Policy>, JsonError> {
    let word = fields::string(scanner, || "options.policy".into(), depth_max)?;
    Ok(match word {
        Ok(None) => Ok(None),
        Ok(Some(word)) if word.is("reject") => Ok(Some(Policy::Reject)),
        Ok(Some(word)) if word.is("dropOldest") => Ok(Some(Policy::DropOldest)),
        _ => Err(wrong("options.policy", "\"reject\" or \"dropOldest\"")),
    })
}

/// Reads a non-negative integer, spelled with digits alone.
fn wrong(field: &'static str, expected: &'static str) -> BodyError {
    BodyError::Wrong { field: field.into(), expected }
}

fn unknown_option(key: RawString<'_>, known: &'static str) -> BodyError {
    BodyError::UnknownOption { name: key.as_sent().to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::{ConfigureBody, Options, Policy, WindowBuffer, parse_configure, parse_options};

    fn message(options: &str) -> String {
        let body = format!(r#"{{"queue":"q","options":{options}}}"#);
        parse_configure(body.as_bytes(), 8).expect_err(options).to_string()
    }

    #[test]
    fn every_option_is_read_and_the_text_kept_as_sent() {
        let text = r#"{ "maxBytes":1, "maxLength" : 2,"policy":"dropOldest","ttlSeconds":3,
            "leaseSeconds":4,"retryLimit":18446744073709551615,"windowBuffer":{"count":6,"ms":5} }"#;
        let options = Options {
            max_bytes: Some(1),
            max_length: Some(2),
            policy: Some(Policy::DropOldest),
            ttl_seconds: Some(3),
            lease_seconds: Some(4),
            retry_limit: Some(u64::MAX),
            window_buffer: Some(WindowBuffer { ms: 5, count: 6 }),
        };
        let body = format!(r#"{{"options" : {text} ,"queue":"q"}}"#);
        assert_eq!(
            parse_configure(body.as_bytes(), 8),
            Ok(ConfigureBody { queue: "q".into(), options_text: text.into(), options })
        );
        assert_eq!(parse_options(text), Ok(options));
    }

    #[test]
    fn no_options_and_null_are_the_empty_declaration() {
        for body in [r#"{"queue":"q"}"#, r#"{"queue":"q","options":null}"#] {
            let declared = parse_configure(body.as_bytes(), 8).expect(body);
            assert_eq!(declared.options_text, "{}");
            assert_eq!(declared.options, Options::default());
        }
        let nulls = r#"{"maxBytes":null,"policy":null,"windowBuffer":null}"#;
        assert_eq!(parse_options(nulls), Ok(Options::default()));
    }

    #[test]
    fn the_last_of_an_option_counts() {
        let options = parse_options(r#"{"maxLength":"x","maxLength":7,"policy":"reject"}"#);
        let expected = Options { max_length: Some(7), policy: Some(Policy::Reject), ..Options::default() };
        assert_eq!(options, Ok(expected));
    }

    #[test]
    fn an_unknown_option_is_answered_with_those_that_exist() {
        assert_eq!(
            message(r#"{"maxlength":1}"#),
            "unknown option `maxlength`: the options are maxBytes, maxLength, policy, ttlSeconds, \
             leaseSeconds, retryLimit, windowBuffer"
        );
        assert_eq!(
            message(r#"{"windowBuffer":{"ms":1,"size":2}}"#),
            "unknown option `size`: the options are ms, count"
        );
    }

    #[test]
    fn numbers_are_non_negative_integers() {
        for value in ["1.5", "1.0", "-1", "-0", "\"3\"", "1e2", "true", "[]", "{}"] {
            assert_eq!(
                message(&format!(r#"{{"ttlSeconds":{value}}}"#)),
                "`options.ttlSeconds` must be a non-negative integer of at most 64 bits",
                "{value}"
            );
        }
        assert_eq!(
            message(r#"{"maxBytes":18446744073709551616}"#),
            "`options.maxBytes` must be a non-negative integer of at most 64 bits"
        );
        assert_eq!(
            message(r#"{"windowBuffer":{"ms":1.5}}"#),
            "`options.windowBuffer.ms` must be a non-negative integer of at most 64 bits"
        );
    }

    #[test]
    fn other_values_say_what_they_must_be() {
        assert_eq!(message("[]"), "`options` must be an object");
        assert_eq!(message(r#"{"windowBuffer":5}"#), "`options.windowBuffer` must be an object");
        for value in ["\"drop\"", "1"] {
            assert_eq!(
                message(&format!(r#"{{"policy":{value}}}"#)),
                "`options.policy` must be \"reject\" or \"dropOldest\""
            );
        }
    }
}
