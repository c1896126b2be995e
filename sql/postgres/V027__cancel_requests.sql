-- Why somebody wants a running run cancelled, {"error", "message"}: the process that executes it reads this, stores
-- what the run has done and ends it. SQLite has one process, which needs no such word.
ALTER TABLE runs ADD COLUMN cancel jsonb;
