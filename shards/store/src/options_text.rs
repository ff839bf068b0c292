//! A queue's options as the JSON text that both databases keep: readable beside the broker, and open to new options.

use queen_log::options::QueueOptions;
use serde_json::{Map, Value};

/// Writes and reads every option under its field's name. A name that is not there keeps the default, one that is not
/// known is skipped: an older and a newer broker read each other's.
macro_rules! options {
    ($($field:ident: $read:ident),+ $(,)?) => {
        /// The text of options.
        pub(crate) fn write(options: &QueueOptions) -> String {
            // Taken apart by name, so that an option that is added to the type is missed here by the compiler.
            let QueueOptions { $($field),+ } = options.clone();
            let mut map = Map::new();
            $(map.insert(stringify!($field).to_owned(), Value::from($field));)+
            Value::Object(map).to_string()
        }

        /// The options of a text. What is not of its type is the default.
        pub(crate) fn read(text: &str) -> QueueOptions {
            let mut options = QueueOptions::default();
            let Ok(Value::Object(map)) = serde_json::from_str(text) else { return options };
            $(if let Some(value) = map.get(stringify!($field)).and_then(Value::$read) {
                options.$field = value;
            })+
            options
        }
    };
}

options! {
    lease_s: as_i64,
    retry_limit: as_i64,
    dead_letter_queue: as_bool,
    dlq_after_max_retries: as_bool,
    delayed_s: as_i64,
    window_buffer_s: as_i64,
    min_pop_wait_ms: as_i64,
    dedup_window_s: as_i64,
    encryption_enabled: as_bool,
    retention_enabled: as_bool,
    retention_s: as_i64,
    completed_retention_s: as_i64,
    max_wait_s: as_i64,
    priority: as_i64,
    ttl_s: as_i64,
    max_size: as_i64,
    retry_delay_ms: as_i64,
    retention_sink_hold: as_bool,
    retention_sink_hold_max_s: as_i64,
}

/// Whether a queue with these options removes messages: kept in a column of its own, for
/// [`Load::Retaining`](queen_log::store::Load::Retaining).
pub(crate) fn retains(options: &QueueOptions) -> bool {
    options.max_wait_s > 0
        || options.retention_enabled && (options.retention_s > 0 || options.completed_retention_s > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_and_what_is_missing_is_the_default() {
        let options =
            QueueOptions { lease_s: -5, retention_sink_hold: true, ttl_s: i64::MAX, ..QueueOptions::implicit() };
        assert_eq!(read(&write(&options)), options);
        assert_eq!(
            read("{\"lease_s\": 7, \"new\": [], \"ttl_s\": \"x\"}"),
            QueueOptions { lease_s: 7, ..QueueOptions::default() }
        );
        assert_eq!(read("nothing"), QueueOptions::default());
    }
}
