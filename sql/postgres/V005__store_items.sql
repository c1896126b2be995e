-- Long-term memory of nodes, shared between threads. A namespace is a list of labels, so that the
-- items below a prefix are a range of keys.

CREATE TABLE store_items (
  namespace text[] COLLATE "C",
  key text COLLATE "C",
  type text NOT NULL,                       -- codec of the value
  value bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  ttl bigint,                               -- microseconds after the last write, NULL = kept for ever
  expires_at timestamptz,
  PRIMARY KEY (namespace, key)
);
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
