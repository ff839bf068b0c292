//! POST configure: makes a queue or changes its options.

use std::rc::Rc;

use queen_log::{
    options::{Change, OptionsPatch},
    request::Request,
    row::QueueRow,
};
use queen_wire::durable::{self, Given, Number, Switch, parse_configure};

use super::{Plan, render::key};
use crate::{
    connection::{Frame, Out},
    dispatch::{Call, Handled},
    error::ApiError,
    shard::Shard,
};

/// What the answer to a configuration needs of it.
pub(super) struct ConfigurePlan {
    /// The call asked for encrypted payloads.
    encryption: bool,
}

impl Shard {
    pub(crate) fn durable_configure(self: &Rc<Self>, call: &Call<'_>) -> Result<Handled, ApiError> {
        let configure = parse_configure(call.request.body, self.node.config.json_depth_max);
        let configure = configure.map_err(|fault| ApiError::bad_request(&fault))?;
        let queue = (&*configure.queue).into();
        let patch = Box::new(patch(configure));
        let plan = ConfigurePlan { encryption: patch.encryption_enabled == Change::Set(true) };
        let request = Request::Configure { tenant: call.log_tenant(), queue, patch };
        self.serve_stored(call, request, Plan::Configure(plan))
    }
}

fn patch(configure: durable::Configure<'_>) -> OptionsPatch {
    let mut patch = OptionsPatch {
        replace: configure.replace,
        namespace: text(configure.namespace),
        task: text(configure.task),
        ..OptionsPatch::default()
    };
    for (number, given) in configure.numbers {
        *number_of(&mut patch, number) = change(given);
    }
    for (switch, given) in configure.switches {
        *switch_of(&mut patch, switch) = change(given);
    }
    patch
}

fn text(given: Option<Given<std::borrow::Cow<'_, str>>>) -> Change<String> {
    match given {
        None => Change::Keep,
        Some(Given::Default) => Change::Default,
        Some(Given::Value(value)) => Change::Set(value.into_owned()),
    }
}

fn change<T>(given: Given<T>) -> Change<T> {
    match given {
        Given::Default => Change::Default,
        Given::Value(value) => Change::Set(value),
    }
}

fn number_of(patch: &mut OptionsPatch, number: Number) -> &mut Change<i64> {
    match number {
        Number::LeaseS => &mut patch.lease_s,
        Number::RetryLimit => &mut patch.retry_limit,
        Number::DelayedS => &mut patch.delayed_s,
        Number::WindowBufferS => &mut patch.window_buffer_s,
        Number::MinPopWaitMs => &mut patch.min_pop_wait_ms,
        Number::DedupWindowS => &mut patch.dedup_window_s,
        Number::RetentionS => &mut patch.retention_s,
        Number::CompletedRetentionS => &mut patch.completed_retention_s,
        Number::MaxWaitS => &mut patch.max_wait_s,
        Number::Priority => &mut patch.priority,
        Number::TtlS => &mut patch.ttl_s,
        Number::MaxSize => &mut patch.max_size,
        Number::RetryDelayMs => &mut patch.retry_delay_ms,
        Number::RetentionSinkHoldMaxS => &mut patch.retention_sink_hold_max_s,
    }
}

fn switch_of(patch: &mut OptionsPatch, switch: Switch) -> &mut Change<bool> {
    match switch {
        Switch::DeadLetterQueue => &mut patch.dead_letter_queue,
        Switch::DlqAfterMaxRetries => &mut patch.dlq_after_max_retries,
        Switch::EncryptionEnabled => &mut patch.encryption_enabled,
        Switch::RetentionEnabled => &mut patch.retention_enabled,
        Switch::RetentionSinkHold => &mut patch.retention_sink_hold,
    }
}

impl ConfigurePlan {
    /// `200 {"configured","queueId","queue","namespace","task","partitionId","storage","options"}`, the options being
    /// those in force.
    pub(super) fn write(&self, row: &QueueRow, frame: &Frame, out: &mut Out) {
        if self.encryption {
            tracing::warn!(queue = &*row.name, "encryptionEnabled is stored and shown, but payloads are not encrypted");
        }
        out.with_body(frame, 200, |body| {
            body.push(b'{');
            key(body, "configured").boolean(true);
            key(body, "queueId").id(row.id);
            key(body, "queue").text(&row.name);
            key(body, "namespace").text(&row.namespace);
            key(body, "task").text(&row.task);
            key(body, "partitionId").raw(b"null");
            key(body, "storage").text("segments");
            key(body, "options").raw(b"{");
            append_options(body, row);
            body.extend_from_slice(b"}}");
        });
    }
}

/// Appends the members of the options object.
fn append_options(body: &mut Vec<u8>, row: &QueueRow) {
    let options = &row.options;
    for (name, value) in [
        ("leaseTime", options.lease_s),
        ("retryLimit", options.retry_limit),
        ("delayedProcessing", options.delayed_s),
        ("windowBuffer", options.window_buffer_s),
        ("minPopWaitTime", options.min_pop_wait_ms),
        ("dedupWindowSeconds", options.dedup_window_s),
        ("retentionSeconds", options.retention_s),
        ("completedRetentionSeconds", options.completed_retention_s),
        ("maxWaitTimeSeconds", options.max_wait_s),
        ("priority", options.priority),
        ("ttl", options.ttl_s),
        ("maxSize", options.max_size),
        ("retryDelay", options.retry_delay_ms),
        ("retentionSinkHoldMaxSeconds", options.retention_sink_hold_max_s),
    ] {
        key(body, name).signed(value);
    }
    for (name, value) in [
        ("deadLetterQueue", options.dead_letter_queue),
        ("dlqAfterMaxRetries", options.dlq_after_max_retries),
        ("encryptionEnabled", options.encryption_enabled),
        ("retentionEnabled", options.retention_enabled),
        ("retentionSinkHold", options.retention_sink_hold),
    ] {
        key(body, name).boolean(value);
    }
}

#[cfg(test)]
mod tests {
    use queen_log::options::QueueOptions;

    use super::*;

    #[test]
    fn every_option_reaches_its_place() {
        let body = br#"{"queue":"q","mode":"replace","namespace":"n","options":{"task":null,"leaseTime":1,
            "retryLimit":2,"delayedProcessing":3,"windowBuffer":4,"minPopWaitTime":5,"dedupWindowSeconds":6,
            "retentionSeconds":7,"completedRetentionSeconds":8,"maxWaitTimeSeconds":9,"priority":10,"ttl":11,
            "maxSize":12,"retryDelay":13,"retentionSinkHoldMaxSeconds":14,"deadLetterQueue":false,
            "dlqAfterMaxRetries":false,"encryptionEnabled":true,"retentionEnabled":true,"retentionSinkHold":true}}"#;
        let patch = patch(parse_configure(body, 8).expect("a configuration"));
        assert!(patch.replace);
        let (options, namespace, task) = patch.apply(&QueueOptions::default(), "old", "old");
        assert_eq!((&*namespace, &*task), ("n", ""));
        assert_eq!(
            options,
            QueueOptions {
                lease_s: 1,
                retry_limit: 2,
                delayed_s: 3,
                window_buffer_s: 4,
                min_pop_wait_ms: 5,
                dedup_window_s: 6,
                retention_s: 7,
                completed_retention_s: 8,
                max_wait_s: 9,
                priority: 10,
                ttl_s: 11,
                max_size: 12,
                retry_delay_ms: 13,
                retention_sink_hold_max_s: 14,
                dead_letter_queue: false,
                dlq_after_max_retries: false,
                encryption_enabled: true,
                retention_enabled: true,
                retention_sink_hold: true,
            }
        );
    }
}
