-- What a tenant may use of ephemeral queues; NULL is no limit.
CREATE TABLE queen.ephemeral_quota (
    tenant_id uuid PRIMARY KEY,
    enabled boolean NOT NULL DEFAULT true,
    max_bytes int8 CHECK (max_bytes >= 0),
    max_queues int8 CHECK (max_queues >= 0),
    max_msgs_per_sec int8 CHECK (max_msgs_per_sec >= 0)
);

-- What operators have switched. 'ephemeral': whether ephemeral queues are served; they are when there is no row.
CREATE TABLE queen.switch (
    name text COLLATE "C" PRIMARY KEY,
    enabled boolean NOT NULL
);
