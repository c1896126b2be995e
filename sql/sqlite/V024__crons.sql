-- Crons: schedules by which runs are created. The index of those that are due is what the process reads
-- once a second.

CREATE TABLE crons (
  cron_id BLOB PRIMARY KEY,
  owner TEXT NOT NULL,
  principal TEXT,                           -- on whose behalf its runs are; NULL = nobody authenticated
  assistant_id BLOB NOT NULL,
  thread_id BLOB,                           -- NULL = a new thread for every run
  schedule TEXT NOT NULL,
  timezone TEXT,                            -- IANA name, NULL = UTC
  end_time INTEGER,
  enabled INTEGER NOT NULL,
  on_run_completed TEXT,                    -- delete | keep; NULL when it has a thread
  metadata TEXT NOT NULL,
  type TEXT NOT NULL,                       -- codec of the payload
  payload BLOB NOT NULL,                    -- what its runs request
  next_run_at INTEGER,                      -- NULL = never again
  last_run_at INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
);
CREATE INDEX crons_due ON crons (next_run_at) WHERE enabled AND next_run_at IS NOT NULL;
CREATE INDEX crons_thread ON crons (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_assistant ON crons (assistant_id);
CREATE INDEX crons_owner ON crons (owner, created_at, cron_id);
CREATE INDEX crons_created ON crons (created_at, cron_id);
