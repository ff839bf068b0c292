-- What a tenant may use of ephemeral queues; NULL is no limit.
CREATE TABLE ephemeral_quota (
    tenant_id BLOB PRIMARY KEY CHECK (length(tenant_id) = 16),
    enabled INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    max_bytes INTEGER CHECK (max_bytes >= 0),
    max_queues INTEGER CHECK (max_queues >= 0),
    max_msgs_per_sec INTEGER CHECK (max_msgs_per_sec >= 0)
) STRICT, WITHOUT ROWID;

-- What operators have switched. 'ephemeral': whether ephemeral queues are served; they are when there is no row.
CREATE TABLE switch (
    name TEXT PRIMARY KEY,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1))
) STRICT, WITHOUT ROWID;
