//! The query of a pop.

use std::borrow::Cow;

use super::SECONDS_MAX;
use crate::body::BodyError;
use crate::name::{self, NameError};
use crate::target::{self, Query, TIMEOUT_DEFAULT_MS};
use crate::time;

/// Messages of a pop that names no number, and of one that leaves it to the broker.
const BATCH: u32 = 200;
const BATCH_AUTOPILOT: u32 = 100;

/// Partitions of a pop that names no number, and of one that leaves it to the broker.
const PARTITIONS: u32 = 1;
const PARTITIONS_AUTOPILOT: u32 = 8;

/// The longest wait of a pop, in milliseconds: a day.
const TIMEOUT_MAX_MS: u64 = 86_400_000;

/// What a pop asks for beside where, with defaults in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopQuery<'a> {
    /// The consumer group's name; `None` is queue mode.
    pub group: Option<Cow<'a, str>>,
    /// The most messages, at least 1.
    pub batch: u32,
    /// The most partitions, at least 1; `u32::MAX` for no cap.
    pub partitions: u32,
    /// Whether to wait for a message.
    pub wait: bool,
    /// How long to wait, in milliseconds. 0 does not wait.
    pub timeout_ms: u64,
    /// Whether delivery counts as the ack.
    pub auto_ack: bool,
    /// In place of the queue's lease, in seconds, at least 1.
    pub lease_s: Option<i64>,
    /// Where the group starts at its first contact.
    pub start: Start,
    /// Whether only each partition's newest message is wanted; `None` does not say.
    pub conflation: Option<bool>,
    /// The broker chose what was not sent.
    pub autopilot: bool,
    /// For discovery: equal to this, if given.
    pub namespace: Option<Cow<'a, str>>,
    /// For discovery: equal to this, if given.
    pub task: Option<Cow<'a, str>>,
}

/// Where a group starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest message.
    All,
    /// At what comes from now on.
    New,
    /// At the first message stamped at this or later, in microseconds since 1970.
    From(i64),
}

impl<'a> PopQuery<'a> {
    /// Reads the query of a pop; of a `pinned` one the path names the partition, and autopilot means nothing. Parameters that a pop does not have are ignored.
    ///
    /// # Errors
    /// [`BodyError`], naming the parameter: one given twice, a boolean other than `true` and `false`, a number that is
    /// none or is too large, a negative `timeout`, an escape that cannot be read, a name with a control character, or
    /// a conflating pop without a group or with autoAck.
    pub fn parse(query: Option<&'a str>, pinned: bool) -> Result<Self, BodyError> {
        let (mut group, mut batch, mut partitions) = (None, None, None);
        let (mut wait, mut timeout_ms, mut auto_ack, mut lease_s) = (None, None, None, None);
        let (mut mode, mut from, mut conflation, mut autopilot) = (None, None, None, None);
        let (mut namespace, mut task) = (None, None);
        for parameter in Query::new(query) {
            let (parameter, value) = parameter?;
            match &*parameter {
                "consumerGroup" => {
                    name::check_partition("consumerGroup", &value)?;
                    target::once(&mut group, "consumerGroup", value)?;
                }
                "batch" => target::once(&mut batch, "batch", signed(&value, "batch")?)?,
                "partitions" => target::once(&mut partitions, "partitions", signed(&value, "partitions")?)?,
                "wait" => target::once(&mut wait, "wait", target::boolean(&value, "wait")?)?,
                "timeout" => target::once(&mut timeout_ms, "timeout", target::integer(&value, "timeout")?)?,
                "autoAck" => target::once(&mut auto_ack, "autoAck", target::boolean(&value, "autoAck")?)?,
                "leaseSeconds" => target::once(&mut lease_s, "leaseSeconds", signed(&value, "leaseSeconds")?)?,
                "subscriptionMode" => target::once(&mut mode, "subscriptionMode", value)?,
                "subscriptionFrom" => target::once(&mut from, "subscriptionFrom", value)?,
                "conflation" => target::once(&mut conflation, "conflation", target::boolean(&value, "conflation")?)?,
                "autopilot" => target::once(&mut autopilot, "autopilot", target::boolean(&value, "autopilot")?)?,
                "namespace" => target::once(&mut namespace, "namespace", label(value, "namespace")?)?,
                "task" => target::once(&mut task, "task", label(value, "task")?)?,
                _ => {}
            }
        }
        let autopilot = autopilot.unwrap_or(false) && !pinned;
        let auto_ack = auto_ack.unwrap_or(false);
        if conflation == Some(true) && (group.is_none() || auto_ack) {
            let expected = "left out without `consumerGroup` and together with `autoAck`";
            return Err(BodyError::Wrong { field: "conflation".into(), expected });
        }
        Ok(Self {
            group,
            batch: batch.map_or(if autopilot { BATCH_AUTOPILOT } else { BATCH }, at_least_1),
            partitions: match partitions {
                None if autopilot => PARTITIONS_AUTOPILOT,
                None => PARTITIONS,
                Some(..=0) => u32::MAX,
                Some(partitions) => at_least_1(partitions),
            },
            wait: wait.unwrap_or(false),
            timeout_ms: timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS).min(TIMEOUT_MAX_MS),
            auto_ack,
            lease_s: lease_s.filter(|&seconds| seconds > 0).map(|seconds| seconds.min(SECONDS_MAX)),
            start: start(mode.as_deref(), from.as_deref()),
            conflation,
            autopilot,
            namespace: namespace.flatten(),
            task: task.flatten(),
        })
    }
}

/// A time beats a mode; what cannot be read is `new`.
fn start(mode: Option<&str>, from: Option<&str>) -> Start {
    match (from, mode) {
        (Some(from), _) => time::parse_us(from).map_or(Start::New, Start::From),
        (None, None | Some("new" | "new-only" | "new_only" | "newonly")) => Start::New,
        (None, Some(_)) => Start::All,
    }
}

/// A number that may be negative.
fn signed(value: &str, parameter: &'static str) -> Result<i64, BodyError> {
    let wrong = BodyError::Wrong { field: parameter.into(), expected: "a whole number" };
    if value.starts_with('+') { Err(wrong) } else { value.parse().map_err(|_| wrong) }
}

fn at_least_1(value: i64) -> u32 {
    u32::try_from(value.max(1)).unwrap_or(u32::MAX)
}

/// The name of a namespace or a task. The empty one asks for nothing.
fn label<'a>(value: Cow<'a, str>, parameter: &'static str) -> Result<Option<Cow<'a, str>>, BodyError> {
    check_label(parameter, &value)?;
    Ok((!value.is_empty()).then_some(value))
}

/// Namespaces and tasks are free text, but for U+0000, which no store keeps.
pub(super) fn check_label(field: &'static str, text: &str) -> Result<(), BodyError> {
    if text.contains('\0') { Err(BodyError::Name { field, fault: NameError::Control }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{PopQuery, Start};

    fn pop(query: &str) -> PopQuery<'_> {
        PopQuery::parse(Some(query), false).expect(query)
    }

    #[test]
    fn a_pop_has_defaults_for_everything() {
        assert_eq!(
            PopQuery::parse(None, false),
            Ok(PopQuery {
                group: None,
                batch: 200,
                partitions: 1,
                wait: false,
                timeout_ms: 30_000,
                auto_ack: false,
                lease_s: None,
                start: Start::New,
                conflation: None,
                autopilot: false,
                namespace: None,
                task: None,
            })
        );
    }

    #[test]
    fn a_pop_reads_every_parameter() {
        let query = "batch=5&partitions=3&wait=true&timeout=0&autoAck=false&consumerGroup=g+1&leaseSeconds=7\
                     &subscriptionMode=all&conflation=true&namespace=n&task=t&frames=true";
        assert_eq!(
            pop(query),
            PopQuery {
                group: Some("g 1".into()),
                batch: 5,
                partitions: 3,
                wait: true,
                timeout_ms: 0,
                auto_ack: false,
                lease_s: Some(7),
                start: Start::All,
                conflation: Some(true),
                autopilot: false,
                namespace: Some("n".into()),
                task: Some("t".into()),
            }
        );
    }

    #[test]
    fn numbers_below_one_have_their_meaning() {
        let pop = pop("batch=0&partitions=-1&leaseSeconds=0&consumerGroup=&namespace=");
        assert_eq!((pop.batch, pop.partitions, pop.lease_s), (1, u32::MAX, None));
        assert_eq!((pop.group.as_deref(), pop.namespace), (Some(""), None));
    }

    #[test]
    fn autopilot_chooses_only_what_was_not_sent() {
        assert_eq!((pop("autopilot=true").batch, pop("autopilot=true").partitions), (100, 8));
        let chosen = pop("autopilot=true&batch=7");
        assert_eq!((chosen.batch, chosen.partitions), (7, 8));
        assert_eq!(pop("autopilot=true&partitions=2").partitions, 2);
        let pinned = PopQuery::parse(Some("autopilot=true"), true).expect("a query");
        assert_eq!((pinned.batch, pinned.autopilot), (200, false));
    }

    #[test]
    fn a_start_is_a_time_or_a_mode() {
        for (query, start) in [
            ("subscriptionMode=new-only", Start::New),
            ("subscriptionMode=newonly", Start::New),
            ("subscriptionMode=earliest", Start::All),
            ("subscriptionMode=all&subscriptionFrom=now", Start::New),
            ("subscriptionMode=new&subscriptionFrom=1970-01-01T00:00:01Z", Start::From(1_000_000)),
            ("subscriptionFrom=yesterday", Start::New),
        ] {
            assert_eq!(pop(query).start, start, "{query}");
        }
    }

    #[test]
    fn a_parameter_that_is_wrong_is_named() {
        let conflation = "`conflation` must be left out without `consumerGroup` and together with `autoAck`";
        for (query, expected) in [
            ("batch=", "`batch` must be a whole number"),
            ("batch=1.5", "`batch` must be a whole number"),
            ("batch=9223372036854775808", "`batch` must be a whole number"),
            ("partitions=x", "`partitions` must be a whole number"),
            ("timeout=-1", "`timeout` must be a non-negative integer of at most 64 bits"),
            ("wait=True", "`wait` must be true or false"),
            ("autoAck=", "`autoAck` must be true or false"),
            ("batch=1&batch=1", "the query parameter `batch` is given more than once"),
            ("consumerGroup=%00", "`consumerGroup` holds a control character"),
            ("namespace=%00", "`namespace` holds a control character"),
            ("consumerGroup=%ff", "the query parameter `consumerGroup` is not UTF-8"),
            ("conflation=true", conflation),
            ("conflation=true&consumerGroup=g&autoAck=true", conflation),
        ] {
            assert_eq!(PopQuery::parse(Some(query), false).expect_err(query).to_string(), expected);
        }
    }
}
