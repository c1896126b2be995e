-- The outbox of webhooks: one row per run that has ended with a webhook that was not delivered yet. A trigger
-- inserts it, so that no transaction can end a run without it; who rolls a run back takes the webhook from the row.
ALTER TABLE runs ADD COLUMN webhook text;             -- NULL: none
ALTER TABLE runs ADD COLUMN started_at timestamptz;   -- the first attempt

CREATE TABLE outbox (
  run_id uuid,                            -- also the delivery's id: one webhook per run
  tree_id uuid,
  thread_id uuid NOT NULL,
  url text NOT NULL,
  host text COLLATE "C" NOT NULL,         -- with its port, as the URL names it
  principal text COLLATE "C" NOT NULL,    -- '' while nobody authenticates
  attempts int NOT NULL DEFAULT 0,
  next_at timestamptz NOT NULL DEFAULT now(),  -- pushed on by whoever takes it, so that a dead sender delays and loses nothing
  dead_at timestamptz,                    -- after the last try
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- What is reported of a run that goes with its thread; NULL for others, whose own row has it.
  assistant_id uuid,
  status text,
  strategy text,
  metadata jsonb,
  type text,
  kwargs bytea,
  error jsonb,
  started_at timestamptz,
  run_created_at timestamptz,
  ended_at timestamptz,
  PRIMARY KEY (run_id, tree_id)
) WITH (fillfactor = 80);
CREATE INDEX outbox_due ON outbox (next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_hosts ON outbox (host, next_at) WHERE dead_at IS NULL;
CREATE INDEX outbox_dead ON outbox (dead_at) WHERE dead_at IS NOT NULL;

CREATE FUNCTION report_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal)
  VALUES (NEW.run_id, NEW.tree_id, NEW.thread_id, NEW.webhook, substring(NEW.webhook FROM '://([^/?#]*)'), COALESCE(NEW.principal, ''))
  ON CONFLICT DO NOTHING;
  IF NEW.temporary THEN
    UPDATE outbox SET assistant_id = NEW.assistant_id, status = NEW.status, strategy = NEW.strategy, metadata = NEW.metadata,
           type = NEW.type, kwargs = NEW.kwargs, error = NEW.error, started_at = NEW.started_at, run_created_at = NEW.created_at,
           ended_at = NEW.updated_at
     WHERE run_id = NEW.run_id AND tree_id = NEW.tree_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER report_ended_run AFTER UPDATE OF status ON runs FOR EACH ROW
  WHEN (NEW.webhook IS NOT NULL AND OLD.status IN ('pending', 'running') AND NEW.status NOT IN ('pending', 'running'))
  EXECUTE FUNCTION report_ended_run();

-- A delivery goes with the run it reports, unless the run goes with its thread because it has ended.
CREATE FUNCTION drop_report() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM outbox WHERE run_id = OLD.run_id AND tree_id = OLD.tree_id;
  RETURN NULL;
END $$;
CREATE TRIGGER drop_report AFTER DELETE ON runs FOR EACH ROW
  WHEN (OLD.webhook IS NOT NULL AND NOT OLD.temporary)
  EXECUTE FUNCTION drop_report();
