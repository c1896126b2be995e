-- Lists of threads with some metadata find those that few threads have: a label is a field of the metadata that is a
-- text, cut off at 100 characters. It only says where to look: the metadata decide. The server's own fields are in
-- most threads and are no labels, so that runs without metadata of their own write nothing here. Triggers follow the
-- threads, so that no way of changing their metadata or their owner is forgotten.

CREATE TABLE thread_labels (
  label TEXT NOT NULL,
  owner TEXT NOT NULL,
  thread_id BLOB NOT NULL,
  PRIMARY KEY (label, owner, thread_id)
) WITHOUT ROWID;

CREATE TRIGGER label_added AFTER INSERT ON threads WHEN NEW.metadata <> '{}' BEGIN
  INSERT INTO thread_labels (label, owner, thread_id)
  SELECT DISTINCT substr(f.key || '=' || f.value, 1, 100), NEW.owner, NEW.thread_id FROM json_each(NEW.metadata) f
   WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id');
END;
CREATE TRIGGER label_changed AFTER UPDATE OF metadata, owner ON threads WHEN OLD.metadata <> NEW.metadata OR OLD.owner <> NEW.owner BEGIN
  DELETE FROM thread_labels WHERE owner = OLD.owner AND thread_id = OLD.thread_id AND label IN (
    SELECT substr(f.key || '=' || f.value, 1, 100) FROM json_each(OLD.metadata) f WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id'));
  INSERT INTO thread_labels (label, owner, thread_id)
  SELECT DISTINCT substr(f.key || '=' || f.value, 1, 100), NEW.owner, NEW.thread_id FROM json_each(NEW.metadata) f
   WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id');
END;
CREATE TRIGGER label_deleted AFTER DELETE ON threads WHEN OLD.metadata <> '{}' BEGIN
  DELETE FROM thread_labels WHERE owner = OLD.owner AND thread_id = OLD.thread_id AND label IN (
    SELECT substr(f.key || '=' || f.value, 1, 100) FROM json_each(OLD.metadata) f WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id'));
END;

INSERT INTO thread_labels (label, owner, thread_id)
SELECT DISTINCT substr(f.key || '=' || f.value, 1, 100), t.owner, t.thread_id FROM threads t, json_each(t.metadata) f
 WHERE f.type = 'text' AND f.key NOT IN ('graph_id', 'assistant_id');
