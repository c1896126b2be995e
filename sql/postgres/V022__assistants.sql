-- Assistants: graphs with a configuration of their own, in versions. The fields of the active version
-- are repeated in the row, so that lists read one table. Those of the server, one for each graph,
-- have the owner '' and are seen by everybody.

CREATE TABLE assistants (
  assistant_id uuid PRIMARY KEY,
  owner text COLLATE "C" NOT NULL,
  graph_id text COLLATE "C" NOT NULL,
  version int NOT NULL,                     -- the active one
  name text COLLATE "C" NOT NULL,
  description text,
  metadata jsonb NOT NULL,
  type text NOT NULL,                       -- codec of config and context
  config bytea NOT NULL,
  context bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX assistants_owner ON assistants (owner, created_at, assistant_id);
CREATE INDEX assistants_created ON assistants (created_at, assistant_id);
CREATE INDEX assistants_metadata ON assistants USING gin (metadata jsonb_path_ops);

CREATE TABLE assistant_versions (
  assistant_id uuid REFERENCES assistants ON DELETE CASCADE,
  version int,
  graph_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  description text,
  metadata jsonb NOT NULL,
  type text NOT NULL,
  config bytea NOT NULL,
  context bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (assistant_id, version)
);
