-- How many crons, assistants and items of long-term memory each owner has, for the limits on them. Triggers count, so
-- that no way of writing or deleting is forgotten. Items are written often: their count is the sum of several rows, one
-- of which is chosen at random, so that writers of one owner seldom wait for each other.

CREATE TABLE row_counts (
  kind text COLLATE "C",                  -- the table
  owner text COLLATE "C",
  part int,
  total bigint NOT NULL,                  -- of a part it may be negative
  PRIMARY KEY (kind, owner, part)
) WITH (fillfactor = 50);

CREATE FUNCTION count_changed_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO row_counts AS known (kind, owner, part, total)
  SELECT TG_TABLE_NAME, c.owner, floor(random() * TG_ARGV[0]::int)::int, CASE TG_OP WHEN 'DELETE' THEN -count(*) ELSE count(*) END
    FROM changed c GROUP BY c.owner ORDER BY c.owner
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = known.total + EXCLUDED.total;
  RETURN NULL;
END $$;

CREATE TRIGGER count_added AFTER INSERT ON crons
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(1);
CREATE TRIGGER count_deleted AFTER DELETE ON crons
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(1);
CREATE TRIGGER count_added AFTER INSERT ON assistants
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(1);
CREATE TRIGGER count_deleted AFTER DELETE ON assistants
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(1);
CREATE TRIGGER count_added AFTER INSERT ON store_items
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(16);
CREATE TRIGGER count_deleted AFTER DELETE ON store_items
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changed_rows(16);

-- The server takes the id of one of its assistants from a client who has it.
CREATE FUNCTION count_taken_assistant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'assistants' AND owner = OLD.owner AND part = 0;
  RETURN NULL;
END $$;
CREATE TRIGGER count_taken AFTER UPDATE OF owner ON assistants FOR EACH ROW
  WHEN (OLD.owner <> NEW.owner) EXECUTE FUNCTION count_taken_assistant();

INSERT INTO row_counts SELECT 'crons', owner, 0, count(*) FROM crons GROUP BY owner;
INSERT INTO row_counts SELECT 'assistants', owner, 0, count(*) FROM assistants GROUP BY owner;
INSERT INTO row_counts SELECT 'store_items', owner, 0, count(*) FROM store_items GROUP BY owner;
