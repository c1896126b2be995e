-- How many bytes of stored events each principal has, so that removing what is beyond its share needs no sum over all
-- its chunks. Triggers count, so that no way of writing or deleting is forgotten. A transaction counts in the part of
-- its connection alone, so that those of one principal seldom wait for each other. A statement changes the counts of
-- several principals in their order. Transactions that delete runs of several one by one may wait for each other in
-- the same part; one of them is then tried again.

CREATE FUNCTION sum_changed_chunks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO row_counts AS known (kind, owner, part, total)
  SELECT 'run_events', c.principal, pg_backend_pid() % 16, CASE TG_OP WHEN 'DELETE' THEN -sum(c.bytes) ELSE sum(c.bytes) END
    FROM changed c WHERE c.principal IS NOT NULL GROUP BY c.principal ORDER BY c.principal
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = known.total + EXCLUDED.total;
  RETURN NULL;
END $$;

CREATE TRIGGER sum_added AFTER INSERT ON run_events
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION sum_changed_chunks();
CREATE TRIGGER sum_deleted AFTER DELETE ON run_events
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION sum_changed_chunks();

INSERT INTO row_counts
SELECT 'run_events', principal, 0, sum(bytes) FROM run_events WHERE principal IS NOT NULL GROUP BY principal;
