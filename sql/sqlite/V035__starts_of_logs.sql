-- Where the log of each thread begins, so that its entries are counted from there, also when the oldest are gone.
ALTER TABLE stream_positions ADD COLUMN first INTEGER NOT NULL DEFAULT 0; -- the position before the first one
UPDATE stream_positions
   SET first = COALESCE((SELECT min(e.position) - 1 FROM run_events e WHERE e.thread_id = stream_positions.thread_id), last);
