-- Which append a segment came from: a number that its writer drew. Those that are older have none.
ALTER TABLE queen.segment ADD COLUMN mark int8 NOT NULL DEFAULT 0;
