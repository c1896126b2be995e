-- Search of long-term memory by meaning: vectors of texts of items. Those of a model that is no longer
-- configured do not count; they go with their item, or when it is written anew.

CREATE TABLE store_vectors (
  owner TEXT NOT NULL,
  namespace BLOB NOT NULL,
  key TEXT NOT NULL,
  path TEXT NOT NULL,                       -- which part of the value, '$' = all of it
  part INTEGER NOT NULL,                    -- a path may name several texts
  model TEXT NOT NULL,                      -- of the embedding
  vector BLOB NOT NULL,                     -- f32, little endian, of length 1
  PRIMARY KEY (owner, namespace, key, path, part)
);

CREATE TRIGGER store_items_vectors AFTER DELETE ON store_items BEGIN
  DELETE FROM store_vectors WHERE owner = old.owner AND namespace = old.namespace AND key = old.key;
END;
