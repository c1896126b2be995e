-- Lists of threads with some metadata find those that few threads have: a label is a field of the metadata that is a
-- text, cut off at 100 characters. It only says where to look: the metadata decide. The server's own fields are in
-- most threads and are no labels, so that runs without metadata of their own write nothing here. Triggers follow the
-- threads, so that no way of changing their metadata or their owner is forgotten.

CREATE TABLE thread_labels (
  label text COLLATE "C",
  owner text,
  thread_id uuid,
  PRIMARY KEY (label, owner, thread_id)
);

CREATE FUNCTION labels_of(metadata jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
  SELECT DISTINCT left(f.key || '=' || (f.value #>> '{}'), 100) FROM jsonb_each(metadata) f
   WHERE jsonb_typeof(f.value) = 'string' AND f.key NOT IN ('graph_id', 'assistant_id');
$$;

CREATE FUNCTION label_thread() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  old_labels text[] := ARRAY(SELECT labels_of(OLD.metadata));
  new_labels text[] := ARRAY(SELECT labels_of(NEW.metadata));
BEGIN
  DELETE FROM thread_labels l WHERE l.label = ANY (old_labels) AND l.owner = OLD.owner AND l.thread_id = OLD.thread_id
     AND (OLD.owner IS DISTINCT FROM NEW.owner OR l.label <> ALL (new_labels));
  INSERT INTO thread_labels (label, owner, thread_id)
  SELECT n.label, NEW.owner, NEW.thread_id FROM unnest(new_labels) n(label)
   WHERE OLD.owner IS DISTINCT FROM NEW.owner OR n.label <> ALL (old_labels);
  RETURN NULL;
END $$;

CREATE TRIGGER label_added AFTER INSERT ON threads FOR EACH ROW
  WHEN (NEW.metadata - '{graph_id, assistant_id}'::text[] <> '{}') EXECUTE FUNCTION label_thread();
CREATE TRIGGER label_changed AFTER UPDATE OF metadata, owner ON threads FOR EACH ROW
  WHEN (OLD.metadata - '{graph_id, assistant_id}'::text[] <> NEW.metadata - '{graph_id, assistant_id}'::text[] OR OLD.owner <> NEW.owner)
  EXECUTE FUNCTION label_thread();
CREATE TRIGGER label_deleted AFTER DELETE ON threads FOR EACH ROW
  WHEN (OLD.metadata - '{graph_id, assistant_id}'::text[] <> '{}') EXECUTE FUNCTION label_thread();

INSERT INTO thread_labels (label, owner, thread_id) SELECT l, t.owner, t.thread_id FROM threads t, labels_of(t.metadata) l;
