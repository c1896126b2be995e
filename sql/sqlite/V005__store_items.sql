-- Long-term memory of nodes, shared between threads. A namespace is a JSON list of labels, so that
-- the items below a prefix are a range of keys.

CREATE TABLE store_items (
  namespace TEXT NOT NULL,
  key TEXT NOT NULL,
  type TEXT NOT NULL,                       -- codec of the value
  value BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ttl INTEGER,                              -- microseconds after the last write, NULL = kept for ever
  expires_at INTEGER,
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
