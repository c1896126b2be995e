-- The outbox of webhooks: one row per run that has ended with a webhook that was not delivered yet. A trigger
-- inserts it, so that no transaction can end a run without it; who rolls a run back takes the webhook from the row.
ALTER TABLE runs ADD COLUMN webhook TEXT;             -- NULL: none
ALTER TABLE runs ADD COLUMN started_at INTEGER;       -- the first attempt

CREATE TABLE outbox (
  run_id BLOB NOT NULL,                   -- also the delivery's id: one webhook per run
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  url TEXT NOT NULL,
  host TEXT NOT NULL,                     -- with its port, as the URL names it
  principal TEXT NOT NULL,                -- '' while nobody authenticates
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL,               -- pushed on by whoever takes it, so that a dead sender delays and loses nothing
  dead_at INTEGER,                        -- after the last try
  last_error TEXT,
  created_at INTEGER NOT NULL,
  -- What is reported of a run that goes with its thread; NULL for others, whose own row has it.
  assistant_id BLOB,
  status TEXT,
  strategy TEXT,
  metadata TEXT,
  type TEXT,
  kwargs BLOB,
  error TEXT,
  started_at INTEGER,
  run_created_at INTEGER,
  ended_at INTEGER,
  PRIMARY KEY (run_id, tree_id)
) WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_hosts ON outbox (host, next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_dead ON outbox (dead_at) WHERE dead_at IS NOT NULL;

CREATE TRIGGER report_ended_run AFTER UPDATE OF status ON runs
WHEN NEW.webhook IS NOT NULL AND OLD.status IN ('pending', 'running') AND NEW.status NOT IN ('pending', 'running')
BEGIN
  INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal, next_at, created_at)
  VALUES (NEW.run_id, NEW.tree_id, NEW.thread_id, NEW.webhook,
    -- The URL was written so that a path follows its authority.
    substr(NEW.webhook, instr(NEW.webhook, '://') + 3, instr(substr(NEW.webhook, instr(NEW.webhook, '://') + 3), '/') - 1),
    coalesce(NEW.principal, ''), NEW.updated_at, NEW.updated_at)
  ON CONFLICT DO NOTHING;
  UPDATE outbox SET assistant_id = NEW.assistant_id, status = NEW.status, strategy = NEW.strategy, metadata = NEW.metadata,
         type = NEW.type, kwargs = NEW.kwargs, error = NEW.error, started_at = NEW.started_at, run_created_at = NEW.created_at,
         ended_at = NEW.updated_at
   WHERE run_id = NEW.run_id AND tree_id = NEW.tree_id AND NEW.temporary;
END;

-- A delivery goes with the run it reports, unless the run goes with its thread because it has ended.
CREATE TRIGGER drop_report AFTER DELETE ON runs
WHEN OLD.webhook IS NOT NULL AND NOT OLD.temporary
BEGIN
  DELETE FROM outbox WHERE run_id = OLD.run_id AND tree_id = OLD.tree_id;
END;
