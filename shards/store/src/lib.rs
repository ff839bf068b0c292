//! The shard that keeps declarations: SQLite on a thread of its own.
