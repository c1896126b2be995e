-- Items of long-term memory have owners. What was stored before belongs to the principal of servers
-- without keys; '' owns what the author of the graphs made common to all.
--
-- A namespace is a list of labels as bytes that sort as the lists do, so that what is below a prefix
-- is a range of keys in the right order: each label ends with a zero byte, and a zero byte inside
-- one is followed by 255.

CREATE TABLE store_items_new (
  owner TEXT NOT NULL,
  namespace BLOB NOT NULL,
  key TEXT NOT NULL,
  type TEXT NOT NULL,                       -- codec of the value
  value BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ttl INTEGER,                              -- microseconds after the last write, NULL = kept for ever
  expires_at INTEGER,
  PRIMARY KEY (owner, namespace, key)
) WITHOUT ROWID;
INSERT INTO store_items_new
  SELECT 'local',
         (SELECT unhex(group_concat(
             (WITH RECURSIVE bytes (n) AS (
                SELECT 1 UNION ALL SELECT n + 1 FROM bytes WHERE n < length(CAST(label.value AS BLOB)))
              SELECT group_concat(replace(hex(substr(CAST(label.value AS BLOB), n, 1)), '00', '00FF'), '' ORDER BY n)
                FROM bytes) || '00', '' ORDER BY label.key))
            FROM json_each(old.namespace) label),
         old.key, old.type, old.value, old.created_at, old.updated_at, old.ttl, old.expires_at
    FROM store_items old;
DROP TABLE store_items;
ALTER TABLE store_items_new RENAME TO store_items;
CREATE INDEX store_items_expiry ON store_items (expires_at) WHERE expires_at IS NOT NULL;
