-- The log of streams that can be resumed: their frames in chunks, in the order of the run and in that of its
-- thread. Any process reads it, also after the one that wrote it died.
CREATE TABLE run_events (
  run_id uuid,
  first_seq bigint,                       -- number of the first frame within the run
  tree_id uuid,
  last_seq bigint NOT NULL,
  thread_id uuid NOT NULL,
  position bigint NOT NULL,               -- of the first frame within the thread's log; the others follow it
  checkpoint_id uuid,                     -- which the run had reached; NULL: none
  frames bytea NOT NULL,
  temporary boolean NOT NULL,             -- the run's thread goes with it; these rows stay a while
  superseded boolean NOT NULL DEFAULT false, -- of an attempt that died, and no checkpoint stands for them
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (run_id, first_seq, tree_id)
);
CREATE INDEX run_events_thread ON run_events (thread_id, position, tree_id);
CREATE INDEX run_events_age ON run_events (created_at);
CREATE INDEX run_events_temporary ON run_events (created_at) WHERE temporary;

-- The last position in the log of each thread. It begins with the time in microseconds, so that a row that was
-- removed and made again goes on behind all that it gave out before.
CREATE TABLE stream_positions (
  thread_id uuid,
  tree_id uuid,
  last bigint NOT NULL,
  added bigint NOT NULL,                  -- by the last change
  PRIMARY KEY (thread_id, tree_id)
) WITH (fillfactor = 50);

-- A run takes its log along, unless it goes with its thread because it has ended.
CREATE FUNCTION drop_run_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM run_events WHERE run_id = OLD.run_id;
  RETURN NULL;
END $$;
CREATE TRIGGER drop_run_events AFTER DELETE ON runs FOR EACH ROW
  WHEN (NOT OLD.temporary)
  EXECUTE FUNCTION drop_run_events();

CREATE FUNCTION drop_stream_position() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM stream_positions WHERE thread_id = OLD.thread_id;
  RETURN NULL;
END $$;
CREATE TRIGGER drop_stream_position AFTER DELETE ON threads FOR EACH ROW
  EXECUTE FUNCTION drop_stream_position();
CREATE TRIGGER drop_stream_position_of_tombstone AFTER UPDATE OF deleted_at ON threads FOR EACH ROW
  WHEN (NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION drop_stream_position();
