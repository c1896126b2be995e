-- Pages of history with some metadata find those of a thread's checkpoints that have it: a label is a field of the
-- metadata that is a text, cut off at 100 characters. It only says where to look: the metadata decide. A checkpoint with
-- more than eight such fields has the label '' alone, which every search reads too. What the server itself writes into most
-- checkpoints is no label, so that runs with neither metadata nor a configurable of their own write nothing here. Triggers
-- follow the rows of checkpoints, so that no way of writing or removing one is forgotten; no statement changes the metadata
-- of one.

CREATE TABLE checkpoint_labels (
  thread_id BLOB NOT NULL,
  label TEXT NOT NULL,
  checkpoint_id BLOB NOT NULL,
  tree_id BLOB NOT NULL,
  PRIMARY KEY (thread_id, label, checkpoint_id, tree_id)
) WITHOUT ROWID;

-- Most checkpoints have the id of their user at most, which the text shows without being read as JSON.
CREATE TRIGGER checkpoint_label_added AFTER INSERT ON checkpoints
  WHEN NEW.metadata <> '{}' AND NEW.checkpoint_ns = ''
   AND NOT (substr(NEW.metadata, 1, 12) = '{"user_id":"' AND instr(NEW.metadata, '","') = 0) BEGIN
  INSERT OR IGNORE INTO checkpoint_labels (thread_id, label, checkpoint_id, tree_id)
  SELECT NEW.thread_id, CASE WHEN count(*) OVER () > 8 THEN '' ELSE substr(f.key || '=' || f.value, 1, 100) END, NEW.checkpoint_id, NEW.tree_id
    FROM json_each(NEW.metadata) f
   WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id', 'user_id', 'cron_id', 'checkpoint_id', 'created_by');
END;
CREATE TRIGGER checkpoint_label_deleted AFTER DELETE ON checkpoints
  WHEN OLD.metadata <> '{}' AND OLD.checkpoint_ns = ''
   AND NOT (substr(OLD.metadata, 1, 12) = '{"user_id":"' AND instr(OLD.metadata, '","') = 0) BEGIN
  DELETE FROM checkpoint_labels WHERE thread_id = OLD.thread_id AND checkpoint_id = OLD.checkpoint_id AND tree_id = OLD.tree_id
     AND label IN (SELECT '' UNION ALL SELECT substr(f.key || '=' || f.value, 1, 100) FROM json_each(OLD.metadata) f WHERE f.type = 'text');
END;

INSERT OR IGNORE INTO checkpoint_labels (thread_id, label, checkpoint_id, tree_id)
SELECT c.thread_id,
       CASE WHEN count(*) OVER (PARTITION BY c.rowid) > 8 THEN '' ELSE substr(f.key || '=' || f.value, 1, 100) END, c.checkpoint_id, c.tree_id
  FROM checkpoints c CROSS JOIN json_each(c.metadata) f
 WHERE c.checkpoint_ns = '' AND c.metadata <> '{}' AND f.type = 'text'
   AND f.key NOT IN ('graph_id', 'assistant_id', 'user_id', 'cron_id', 'checkpoint_id', 'created_by');
