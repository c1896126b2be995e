-- An index holds rows of limited size, so a host of any length would keep its run from ending. DNS knows no name longer
-- than 253 bytes; what is longer, stored before such URLs were refused, is told apart by its beginning and never delivered.
CREATE OR REPLACE FUNCTION report_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal)
  VALUES (NEW.run_id, NEW.tree_id, NEW.thread_id, NEW.webhook, left(substring(NEW.webhook FROM '://([^/?#]*)'), 300),
          COALESCE(NEW.principal, ''))
  ON CONFLICT DO NOTHING;
  IF NEW.temporary THEN
    UPDATE outbox SET assistant_id = NEW.assistant_id, status = NEW.status, strategy = NEW.strategy, metadata = NEW.metadata,
           type = NEW.type, kwargs = NEW.kwargs, error = NEW.error, started_at = NEW.started_at, run_created_at = NEW.created_at,
           ended_at = NEW.updated_at
     WHERE run_id = NEW.run_id AND tree_id = NEW.tree_id;
  END IF;
  RETURN NULL;
END $$;
UPDATE outbox SET host = left(host, 300) WHERE length(host) > 300;
