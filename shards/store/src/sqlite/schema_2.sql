-- Durable queues. Times are microseconds since 1970; ids are UUIDs as 16 bytes.
CREATE TABLE queue (
    id BLOB PRIMARY KEY CHECK (length(id) = 16),
    tenant BLOB NOT NULL CHECK (length(tenant) = 16),
    name TEXT NOT NULL,
    namespace TEXT NOT NULL,
    task TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    changed_us INTEGER NOT NULL,
    retains INTEGER NOT NULL,
    options TEXT NOT NULL,
    UNIQUE (tenant, name)
) STRICT;

-- `number` rises over the whole store. Offsets below `log_start` are gone for readers; their segments are removed once
-- `log_start` has stood at `removable_start` or above since `removable_us`.
CREATE TABLE partition (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    queue_id BLOB NOT NULL,
    name TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    log_start INTEGER NOT NULL DEFAULT 0,
    removable_start INTEGER NOT NULL DEFAULT 0,
    removable_us INTEGER NOT NULL DEFAULT 0,
    removed_start INTEGER NOT NULL DEFAULT 0,
    UNIQUE (queue_id, name)
) STRICT;
CREATE INDEX partition_of_queue ON partition (queue_id, number);

CREATE TABLE segment (
    partition_id BLOB NOT NULL,
    base INTEGER NOT NULL,
    next INTEGER NOT NULL,
    stamp_us INTEGER NOT NULL,
    ahead_us INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX segment_at ON segment (partition_id, base);
CREATE INDEX segment_stamp ON segment (stamp_us);

CREATE TABLE cursor (
    partition_id BLOB NOT NULL,
    group_name TEXT NOT NULL,
    version INTEGER NOT NULL,
    next INTEGER NOT NULL,
    run_end INTEGER NOT NULL,
    lease_id BLOB,
    lease_until_us INTEGER,
    retries INTEGER NOT NULL,
    consumed INTEGER NOT NULL,
    PRIMARY KEY (partition_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_group (
    queue_id BLOB NOT NULL,
    group_name TEXT NOT NULL,
    mode TEXT NOT NULL,
    from_us INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    conflation INTEGER NOT NULL,
    PRIMARY KEY (queue_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letter (
    id BLOB PRIMARY KEY,
    partition_id BLOB NOT NULL,
    at_offset INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    transaction_id TEXT NOT NULL,
    error TEXT NOT NULL,
    retries INTEGER NOT NULL,
    record BLOB NOT NULL,
    failed_us INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_letter_of_partition ON dead_letter (partition_id);
