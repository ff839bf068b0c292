//! A queue's options, and how a call to configure changes them.

/// The lease of a queue that `configure` made, in seconds.
pub const LEASE_CONFIGURED_S: i64 = 300;
/// The lease of a queue that a push or a pop made, in seconds.
pub const LEASE_IMPLICIT_S: i64 = 60;
/// The most milliseconds that a pop lingers for more messages.
pub const MIN_POP_WAIT_MAX_MS: i64 = 60_000;

/// What a queue does. Seconds and milliseconds as the wire has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Seconds that a pop leases for.
    pub lease_s: i64,
    /// Charged failures that are delivered again.
    pub retry_limit: i64,
    /// What is charged beyond the limit is kept as a dead letter; either of the two is enough.
    pub dead_letter_queue: bool,
    /// The other.
    pub dlq_after_max_retries: bool,
    /// Seconds for which a message cannot be popped.
    pub delayed_s: i64,
    /// Seconds for which a partition gathers messages before it is popped.
    pub window_buffer_s: i64,
    /// Milliseconds that a waiting pop lingers for a fuller batch.
    pub min_pop_wait_ms: i64,
    /// Seconds within which a transaction id is known again; 0 knows none.
    pub dedup_window_s: i64,
    /// Stored and echoed; payloads are plain.
    pub encryption_enabled: bool,
    /// Whether the next two act.
    pub retention_enabled: bool,
    /// Messages older than this are removed, consumed or not; 0 removes none.
    pub retention_s: i64,
    /// Older ones that every group has consumed are removed; 0 removes none.
    pub completed_retention_s: i64,
    /// Older ones are removed whatever `retention_enabled` says; 0 removes none.
    pub max_wait_s: i64,
    /// Stored and echoed.
    pub priority: i64,
    /// Stored and echoed.
    pub ttl_s: i64,
    /// Stored and echoed.
    pub max_size: i64,
    /// Stored and echoed.
    pub retry_delay_ms: i64,
    /// Stored and echoed.
    pub retention_sink_hold: bool,
    /// Stored and echoed.
    pub retention_sink_hold_max_s: i64,
}

impl Default for QueueOptions {
    /// What `configure` makes of nothing.
    fn default() -> Self {
        Self {
            lease_s: LEASE_CONFIGURED_S,
            retry_limit: 3,
            dead_letter_queue: true,
            dlq_after_max_retries: true,
            delayed_s: 0,
            window_buffer_s: 0,
            min_pop_wait_ms: 0,
            dedup_window_s: 3600,
            encryption_enabled: false,
            retention_enabled: false,
            retention_s: 0,
            completed_retention_s: 0,
            max_wait_s: 0,
            priority: 0,
            ttl_s: 3600,
            max_size: 0,
            retry_delay_ms: 1000,
            retention_sink_hold: false,
            retention_sink_hold_max_s: 0,
        }
    }
}

impl QueueOptions {
    /// What a push or a pop makes.
    #[must_use]
    pub fn implicit() -> Self {
        Self { lease_s: LEASE_IMPLICIT_S, ..Self::default() }
    }

    /// Whether a message that failed too often is kept.
    #[must_use]
    pub fn keeps_dead_letters(&self) -> bool {
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}

/// One option in a call to configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Change<T> {
    /// Not named: stays.
    #[default]
    Keep,
    /// Null: back to the default.
    Default,
    /// A value, checked and clamped by whoever read it.
    Set(T),
}

impl<T> Change<T> {
    fn apply(self, value: &mut T, default: T) {
        match self {
            Self::Keep => {}
            Self::Default => *value = default,
            Self::Set(new) => *value = new,
        }
    }
}

/// What one call to configure changes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OptionsPatch {
    /// `"mode":"replace"`: what is not named goes back to its default.
    pub replace: bool,
    /// Namespace and task.
    pub namespace: Change<String>,
    /// Task.
    pub task: Change<String>,
    /// `leaseTime`
    pub lease_s: Change<i64>,
    /// `retryLimit`
    pub retry_limit: Change<i64>,
    /// `deadLetterQueue`
    pub dead_letter_queue: Change<bool>,
    /// `dlqAfterMaxRetries`
    pub dlq_after_max_retries: Change<bool>,
    /// `delayedProcessing`
    pub delayed_s: Change<i64>,
    /// `windowBuffer`
    pub window_buffer_s: Change<i64>,
    /// `minPopWaitTime`
    pub min_pop_wait_ms: Change<i64>,
    /// `dedupWindowSeconds`
    pub dedup_window_s: Change<i64>,
    /// `encryptionEnabled`
    pub encryption_enabled: Change<bool>,
    /// `retentionEnabled`
    pub retention_enabled: Change<bool>,
    /// `retentionSeconds`
    pub retention_s: Change<i64>,
    /// `completedRetentionSeconds`
    pub completed_retention_s: Change<i64>,
    /// `maxWaitTimeSeconds`
    pub max_wait_s: Change<i64>,
    /// `priority`
    pub priority: Change<i64>,
    /// `ttl`
    pub ttl_s: Change<i64>,
    /// `maxSize`
    pub max_size: Change<i64>,
    /// `retryDelay`
    pub retry_delay_ms: Change<i64>,
    /// `retentionSinkHold`
    pub retention_sink_hold: Change<bool>,
    /// `retentionSinkHoldMaxSeconds`
    pub retention_sink_hold_max_s: Change<i64>,
}

impl OptionsPatch {
    /// The options, namespace and task after the call.
    #[must_use]
    pub fn apply(self, options: &QueueOptions, namespace: &str, task: &str) -> (QueueOptions, String, String) {
        let default = QueueOptions::default();
        let (mut options, mut namespace, mut task) = if self.replace {
            (default.clone(), String::new(), String::new())
        } else {
            (options.clone(), namespace.to_owned(), task.to_owned())
        };
        self.namespace.apply(&mut namespace, String::new());
        self.task.apply(&mut task, String::new());
        self.lease_s.apply(&mut options.lease_s, default.lease_s);
        self.retry_limit.apply(&mut options.retry_limit, default.retry_limit);
        self.dead_letter_queue.apply(&mut options.dead_letter_queue, default.dead_letter_queue);
        self.dlq_after_max_retries.apply(&mut options.dlq_after_max_retries, default.dlq_after_max_retries);
        self.delayed_s.apply(&mut options.delayed_s, default.delayed_s);
        self.window_buffer_s.apply(&mut options.window_buffer_s, default.window_buffer_s);
        self.min_pop_wait_ms.apply(&mut options.min_pop_wait_ms, default.min_pop_wait_ms);
        self.dedup_window_s.apply(&mut options.dedup_window_s, default.dedup_window_s);
        self.encryption_enabled.apply(&mut options.encryption_enabled, default.encryption_enabled);
        self.retention_enabled.apply(&mut options.retention_enabled, default.retention_enabled);
        self.retention_s.apply(&mut options.retention_s, default.retention_s);
        self.completed_retention_s.apply(&mut options.completed_retention_s, default.completed_retention_s);
        self.max_wait_s.apply(&mut options.max_wait_s, default.max_wait_s);
        self.priority.apply(&mut options.priority, default.priority);
        self.ttl_s.apply(&mut options.ttl_s, default.ttl_s);
        self.max_size.apply(&mut options.max_size, default.max_size);
        self.retry_delay_ms.apply(&mut options.retry_delay_ms, default.retry_delay_ms);
        self.retention_sink_hold.apply(&mut options.retention_sink_hold, default.retention_sink_hold);
        self.retention_sink_hold_max_s.apply(&mut options.retention_sink_hold_max_s, default.retention_sink_hold_max_s);
        (options, namespace, task)
    }
}

/// Namespace and task of a queue that a push or a pop makes: the first two parts of its dotted name.
#[must_use]
pub fn derived(name: &str) -> (&str, &str) {
    let mut parts = name.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undotted_name_is_its_own_namespace() {
        assert_eq!(derived("a.b.c"), ("a", "b"));
        assert_eq!(derived("orders"), ("orders", ""));
    }

    #[test]
    fn what_a_call_leaves_out_stays_unless_it_replaces() {
        let before = QueueOptions { retry_limit: 7, ttl_s: 9, ..QueueOptions::implicit() };
        let patch = OptionsPatch { ttl_s: Change::Default, lease_s: Change::Set(5), ..OptionsPatch::default() };
        let (after, namespace, task) = patch.clone().apply(&before, "n", "t");
        assert_eq!((after.retry_limit, after.ttl_s, after.lease_s), (7, 3600, 5));
        assert_eq!((&*namespace, &*task), ("n", "t"));
        let (after, namespace, _) = OptionsPatch { replace: true, ..patch }.apply(&before, "n", "t");
        assert_eq!((after.retry_limit, after.lease_s, &*namespace), (3, 5, ""));
    }
}
