-- Crons: schedules by which runs are created. The index of those that are due is what every process reads
-- once a second.

CREATE TABLE crons (
  cron_id uuid PRIMARY KEY,
  owner text COLLATE "C" NOT NULL,
  principal text COLLATE "C",               -- on whose behalf its runs are; NULL = nobody authenticated
  assistant_id uuid NOT NULL,
  thread_id uuid,                           -- NULL = a new thread for every run
  schedule text NOT NULL,
  timezone text,                            -- IANA name, NULL = UTC
  end_time timestamptz,
  enabled boolean NOT NULL,
  on_run_completed text,                    -- delete | keep; NULL when it has a thread
  metadata jsonb NOT NULL,
  type text NOT NULL,                       -- codec of the payload
  payload bytea NOT NULL,                   -- what its runs request
  next_run_at timestamptz,                  -- NULL = never again
  last_run_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX crons_due ON crons (next_run_at) WHERE enabled AND next_run_at IS NOT NULL;
CREATE INDEX crons_thread ON crons (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_assistant ON crons (assistant_id);
CREATE INDEX crons_owner ON crons (owner, created_at, cron_id);
CREATE INDEX crons_created ON crons (created_at, cron_id);
CREATE INDEX crons_metadata ON crons USING gin (metadata jsonb_path_ops);
