-- On whose behalf the run of a chunk executes, and how large the chunk is, so that each principal has a share of the log.
-- Chunks from before this migration belong to nobody's share; they go with their age.
ALTER TABLE run_events
  ADD COLUMN principal text,              -- NULL: nobody authenticated
  ADD COLUMN bytes bigint NOT NULL DEFAULT 0; -- of the frames and of the row itself
CREATE INDEX run_events_principal ON run_events (principal, created_at, bytes) WHERE principal IS NOT NULL;
