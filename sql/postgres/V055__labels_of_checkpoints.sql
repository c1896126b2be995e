-- Pages of history with some metadata find those of a thread's checkpoints that have it: a label is a field of the
-- metadata that is a text, cut off at 100 characters. It only says where to look: the metadata decide. A checkpoint with
-- more than eight such fields has the label '' alone, which every search reads too. What the server itself writes into most
-- checkpoints is no label, so that runs with neither metadata nor a configurable of their own write nothing here. Triggers
-- follow the rows of checkpoints, so that no way of writing or removing one is forgotten; no statement changes the metadata
-- of one.

CREATE TABLE checkpoint_labels (
  thread_id uuid,
  label text COLLATE "C",
  checkpoint_id uuid,
  tree_id uuid,
  PRIMARY KEY (thread_id, label, checkpoint_id, tree_id)
);

CREATE FUNCTION labels_of_checkpoint(metadata text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
  SELECT unnest(CASE WHEN l.fields > 8 THEN '{""}' ELSE l.labels END) FROM (
    SELECT count(*) AS fields, array_agg(DISTINCT left(f.key || '=' || (f.value #>> '{}'), 100)) AS labels FROM jsonb_each(metadata::jsonb) f
     WHERE jsonb_typeof(f.value) = 'string'
       AND f.key NOT IN ('graph_id', 'assistant_id', 'user_id', 'cron_id', 'checkpoint_id', 'created_by')) l;
$$;

CREATE FUNCTION label_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.checkpoint_ns = '' THEN
    INSERT INTO checkpoint_labels (thread_id, label, checkpoint_id, tree_id)
    SELECT NEW.thread_id, l, NEW.checkpoint_id, NEW.tree_id FROM labels_of_checkpoint(NEW.metadata) l ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION unlabel_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
-- One label after the other: for all of them at once the database may read every label of the thread and compare them.
DECLARE one text;
BEGIN
  IF OLD.checkpoint_ns = '' THEN
    FOR one IN SELECT l FROM labels_of_checkpoint(OLD.metadata) l LOOP
      DELETE FROM checkpoint_labels l WHERE l.thread_id = OLD.thread_id AND l.label = one AND l.checkpoint_id = OLD.checkpoint_id
         AND l.tree_id = OLD.tree_id;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;

-- Most checkpoints have the ids of their user and of their cron at most, which the text shows without being read as JSON.
-- The condition is parsed again with each statement: a longer one would cost as much as the row of a checkpoint.
CREATE TRIGGER checkpoint_label_added AFTER INSERT ON checkpoints FOR EACH ROW
  WHEN (NEW.metadata !~ '^\{("(user|cron)_id":"[^"\\]*",?)*\}$') EXECUTE FUNCTION label_checkpoint();
CREATE TRIGGER checkpoint_label_deleted AFTER DELETE ON checkpoints FOR EACH ROW
  WHEN (OLD.metadata !~ '^\{("(user|cron)_id":"[^"\\]*",?)*\}$') EXECUTE FUNCTION unlabel_checkpoint();

INSERT INTO checkpoint_labels (thread_id, label, checkpoint_id, tree_id)
SELECT c.thread_id, l, c.checkpoint_id, c.tree_id FROM checkpoints c CROSS JOIN LATERAL labels_of_checkpoint(c.metadata) l
 WHERE c.checkpoint_ns = '' AND c.metadata <> '{}';
