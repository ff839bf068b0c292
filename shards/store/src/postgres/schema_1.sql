-- Times are microseconds since 1970 by the server's clock.

-- One row: what this broker's brokers have agreed on.
CREATE TABLE queen.state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version int4 NOT NULL,
    -- Whether declarations from a data directory were taken over.
    declarations_taken boolean NOT NULL DEFAULT false,
    -- Written to see whether one can write.
    probed_us int8 NOT NULL DEFAULT 0
);
INSERT INTO queen.state (version) VALUES (0);

CREATE TABLE queen.ephemeral_queue (
    tenant uuid NOT NULL,
    queue text COLLATE "C" NOT NULL,
    options text NOT NULL,
    updated_at_ms int8 NOT NULL,
    PRIMARY KEY (tenant, queue)
);

CREATE TABLE queen.queue (
    id uuid PRIMARY KEY,
    tenant uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    created_us int8 NOT NULL,
    changed_us int8 NOT NULL,
    -- Counts changes, so that one that was made from an older row is seen.
    revision int8 NOT NULL DEFAULT 0,
    retains boolean NOT NULL,
    options text NOT NULL,
    UNIQUE (tenant, name)
);

-- Offsets below log_start are gone for readers; their segments are removed once log_start has stood at removable_start
-- or above since before removable_us.
CREATE TABLE queen.partition (
    id uuid PRIMARY KEY,
    number int8 GENERATED ALWAYS AS IDENTITY,
    queue_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_us int8 NOT NULL,
    log_start int8 NOT NULL DEFAULT 0,
    removable_start int8 NOT NULL DEFAULT 0,
    removable_us int8 NOT NULL DEFAULT 0,
    removed_start int8 NOT NULL DEFAULT 0,
    UNIQUE (queue_id, name)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX partition_of_queue ON queen.partition (queue_id, number);

-- Compressed already: not again.
CREATE TABLE queen.segment (
    partition_id uuid NOT NULL,
    base int8 NOT NULL,
    next int8 NOT NULL,
    stamp_us int8 NOT NULL,
    ahead_us int8 NOT NULL,
    hashes bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (partition_id, base)
);
ALTER TABLE queen.segment ALTER COLUMN hashes SET STORAGE EXTERNAL, ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX segment_stamp ON queen.segment (stamp_us);

-- Only its key is indexed and its pages keep room, so that an update stays in its page.
CREATE TABLE queen.cursor (
    partition_id uuid NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    version int8 NOT NULL,
    next int8 NOT NULL,
    run_end int8 NOT NULL,
    lease_id uuid,
    lease_until_us int8,
    retries int8 NOT NULL,
    consumed int8 NOT NULL,
    PRIMARY KEY (partition_id, group_name)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE queen.queue_group (
    queue_id uuid NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    mode text NOT NULL,
    from_us int8 NOT NULL,
    created_us int8 NOT NULL,
    conflation boolean NOT NULL,
    PRIMARY KEY (queue_id, group_name)
);

-- Text that clients chose freely is kept as bytes: it may hold what text cannot.
CREATE TABLE queen.dead_letter (
    id uuid PRIMARY KEY,
    partition_id uuid NOT NULL,
    at_offset int8 NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    transaction_id bytea NOT NULL,
    error bytea NOT NULL,
    retries int8 NOT NULL,
    record bytea NOT NULL,
    failed_us int8 NOT NULL
);
ALTER TABLE queen.dead_letter ALTER COLUMN record SET STORAGE EXTERNAL;
CREATE INDEX dead_letter_of_partition ON queen.dead_letter (partition_id);

-- One row for each connection that commits: its last batch and what that left out, by place, from 1.
CREATE TABLE queen.lane (
    id uuid PRIMARY KEY,
    batch int8 NOT NULL DEFAULT 0,
    closed boolean NOT NULL DEFAULT false,
    now_us int8 NOT NULL,
    left_appends int8[],
    left_cursors int8[]
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Partitions of queues that were deleted: what a statement that ran beside that wrote for them is removed later.
CREATE TABLE queen.dropped_partition (
    id uuid PRIMARY KEY,
    dropped_us int8 NOT NULL
);
