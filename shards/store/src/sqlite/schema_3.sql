-- Which append a segment came from: a number that its writer drew. Those that are older have none.
ALTER TABLE segment ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;
