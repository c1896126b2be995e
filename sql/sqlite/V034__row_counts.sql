-- How many crons, assistants and items of long-term memory each owner has, for the limits on them. Triggers count, so
-- that no way of writing or deleting is forgotten.

CREATE TABLE row_counts (
  kind TEXT NOT NULL, -- the table
  owner TEXT NOT NULL,
  part INTEGER NOT NULL DEFAULT 0, -- there is one
  total INTEGER NOT NULL,
  PRIMARY KEY (kind, owner, part)
) WITHOUT ROWID;

CREATE TRIGGER count_added_crons AFTER INSERT ON crons BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('crons', NEW.owner, 1)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + 1;
END;
CREATE TRIGGER count_deleted_crons AFTER DELETE ON crons BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'crons' AND owner = OLD.owner;
END;
CREATE TRIGGER count_added_assistants AFTER INSERT ON assistants BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('assistants', NEW.owner, 1)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + 1;
END;
CREATE TRIGGER count_deleted_assistants AFTER DELETE ON assistants BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'assistants' AND owner = OLD.owner;
END;
CREATE TRIGGER count_added_store_items AFTER INSERT ON store_items BEGIN
  INSERT INTO row_counts (kind, owner, total) VALUES ('store_items', NEW.owner, 1)
  ON CONFLICT (kind, owner, part) DO UPDATE SET total = total + 1;
END;
CREATE TRIGGER count_deleted_store_items AFTER DELETE ON store_items BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'store_items' AND owner = OLD.owner;
END;
-- The server takes the id of one of its assistants from a client who has it.
CREATE TRIGGER count_taken_assistants AFTER UPDATE OF owner ON assistants WHEN OLD.owner <> NEW.owner BEGIN
  UPDATE row_counts SET total = total - 1 WHERE kind = 'assistants' AND owner = OLD.owner;
END;

INSERT INTO row_counts (kind, owner, total) SELECT 'crons', owner, count(*) FROM crons GROUP BY owner;
INSERT INTO row_counts (kind, owner, total) SELECT 'assistants', owner, count(*) FROM assistants GROUP BY owner;
INSERT INTO row_counts (kind, owner, total) SELECT 'store_items', owner, count(*) FROM store_items GROUP BY owner;
