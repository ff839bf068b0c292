-- Nodes that have no common store tell each other of declarations: the newest wins, and of two of the same time the one
-- of the higher node. What was deleted stays as a tombstone for as long as others may not have heard of it.
ALTER TABLE ephemeral_queue ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE ephemeral_queue ADD COLUMN is_deleted INTEGER NOT NULL DEFAULT 0 CHECK (is_deleted IN (0, 1));
