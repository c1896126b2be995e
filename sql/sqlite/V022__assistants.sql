-- Assistants: graphs with a configuration of their own, in versions. The fields of the active version
-- are repeated in the row, so that lists read one table. Those of the server, one for each graph,
-- have the owner '' and are seen by everybody.

CREATE TABLE assistants (
  assistant_id BLOB PRIMARY KEY,
  owner TEXT NOT NULL,
  graph_id TEXT NOT NULL,
  version INTEGER NOT NULL,                 -- the active one
  name TEXT NOT NULL,
  description TEXT,
  metadata TEXT NOT NULL,
  type TEXT NOT NULL,                       -- codec of config and context
  config BLOB NOT NULL,
  context BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
);
CREATE INDEX assistants_owner ON assistants (owner, created_at, assistant_id);
CREATE INDEX assistants_created ON assistants (created_at, assistant_id);

CREATE TABLE assistant_versions (
  assistant_id BLOB NOT NULL,
  version INTEGER NOT NULL,
  graph_id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT,
  metadata TEXT NOT NULL,
  type TEXT NOT NULL,
  config BLOB NOT NULL,
  context BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (assistant_id, version)
) WITHOUT ROWID;
