-- How many bytes of stored events each principal has, so that removing what is beyond its share needs no sum over all
-- its chunks. Triggers count, so that no way of writing or deleting is forgotten.

CREATE TRIGGER sum_added_run_events AFTER INSERT ON run_events WHEN NEW.principal IS NOT NULL BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('run_events', NEW.principal, NEW.bytes)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + excluded.total;
END;
CREATE TRIGGER sum_deleted_run_events AFTER DELETE ON run_events WHEN OLD.principal IS NOT NULL BEGIN
  UPDATE row_counts SET total = total - OLD.bytes WHERE kind = 'run_events' AND owner = OLD.principal;
END;

INSERT INTO row_counts (kind, owner, total)
SELECT 'run_events', principal, sum(bytes) FROM run_events WHERE principal IS NOT NULL GROUP BY principal;
