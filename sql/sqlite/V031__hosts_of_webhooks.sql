-- DNS knows no name longer than 253 bytes; what is longer, stored before such URLs were refused, is told apart by its
-- beginning and never delivered.
DROP TRIGGER report_ended_run;
CREATE TRIGGER report_ended_run AFTER UPDATE OF status ON runs
WHEN NEW.webhook IS NOT NULL AND OLD.status IN ('pending', 'running') AND NEW.status NOT IN ('pending', 'running')
BEGIN
  INSERT INTO outbox (run_id, tree_id, thread_id, url, host, principal, next_at, created_at)
  VALUES (NEW.run_id, NEW.tree_id, NEW.thread_id, NEW.webhook,
    -- The URL was written so that a path follows its authority.
    substr(substr(NEW.webhook, instr(NEW.webhook, '://') + 3, instr(substr(NEW.webhook, instr(NEW.webhook, '://') + 3), '/') - 1), 1, 300),
    coalesce(NEW.principal, ''), NEW.updated_at, NEW.updated_at)
  ON CONFLICT DO NOTHING;
  UPDATE outbox SET assistant_id = NEW.assistant_id, status = NEW.status, strategy = NEW.strategy, metadata = NEW.metadata,
         type = NEW.type, kwargs = NEW.kwargs, error = NEW.error, started_at = NEW.started_at, run_created_at = NEW.created_at,
         ended_at = NEW.updated_at
   WHERE run_id = NEW.run_id AND tree_id = NEW.tree_id AND NEW.temporary;
END;
UPDATE outbox SET host = substr(host, 1, 300) WHERE length(host) > 300;
