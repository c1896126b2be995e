-- Search of long-term memory by meaning: vectors of texts of items. Those of a model that is no longer
-- configured do not count; they go with their item, or when it is written anew.

CREATE TABLE store_vectors (
  owner text COLLATE "C" NOT NULL,
  namespace text[] COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  path text COLLATE "C" NOT NULL,           -- which part of the value, '$' = all of it
  part int NOT NULL,                        -- a path may name several texts
  model text NOT NULL,                      -- of the embedding
  vector bytea NOT NULL,                    -- f32, little endian, of length 1
  PRIMARY KEY (owner, namespace, key, path, part),
  FOREIGN KEY (owner, namespace, key) REFERENCES store_items ON DELETE CASCADE
);
