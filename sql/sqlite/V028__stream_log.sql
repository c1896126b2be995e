-- The log of streams that can be resumed: their frames in chunks, in the order of the run and in that of its
-- thread. Any process reads it, also after the one that wrote it died.
CREATE TABLE run_events (
  run_id BLOB NOT NULL,
  first_seq INTEGER NOT NULL,             -- number of the first frame within the run
  tree_id BLOB NOT NULL,
  last_seq INTEGER NOT NULL,
  thread_id BLOB NOT NULL,
  position INTEGER NOT NULL,              -- of the first frame within the thread's log; the others follow it
  checkpoint_id BLOB,                     -- which the run had reached; NULL: none
  frames BLOB NOT NULL,
  temporary INTEGER NOT NULL,             -- the run's thread goes with it; these rows stay a while
  superseded INTEGER NOT NULL DEFAULT 0,  -- of an attempt that died, and no checkpoint stands for them
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run_id, first_seq, tree_id)
);
CREATE INDEX run_events_thread ON run_events (thread_id, position, tree_id);
CREATE INDEX run_events_age ON run_events (created_at);
CREATE INDEX run_events_temporary ON run_events (created_at) WHERE temporary;

-- The last position in the log of each thread. It begins with the time in microseconds, so that a row that was
-- removed and made again goes on behind all that it gave out before.
CREATE TABLE stream_positions (
  thread_id BLOB NOT NULL,
  tree_id BLOB NOT NULL,
  last INTEGER NOT NULL,
  added INTEGER NOT NULL,                 -- by the last change
  PRIMARY KEY (thread_id, tree_id)
) WITHOUT ROWID;

-- A run takes its log along, unless it goes with its thread because it has ended.
CREATE TRIGGER drop_run_events AFTER DELETE ON runs
WHEN NOT OLD.temporary
BEGIN
  DELETE FROM run_events WHERE run_id = OLD.run_id;
END;

CREATE TRIGGER drop_stream_position AFTER DELETE ON threads
BEGIN
  DELETE FROM stream_positions WHERE thread_id = OLD.thread_id;
END;
CREATE TRIGGER drop_stream_position_of_tombstone AFTER UPDATE OF deleted_at ON threads
WHEN NEW.deleted_at IS NOT NULL
BEGIN
  DELETE FROM stream_positions WHERE thread_id = OLD.thread_id;
END;
