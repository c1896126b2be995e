-- Tables shaped as LangGraph's Postgres saver has them, for reference.pgbench.
DROP TABLE IF EXISTS reference_checkpoints, reference_blobs, reference_writes;
CREATE TABLE reference_checkpoints (thread_id text, checkpoint_ns text, checkpoint_id text, parent_checkpoint_id text, type text,
  checkpoint jsonb NOT NULL, metadata jsonb NOT NULL, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE reference_blobs (thread_id text, checkpoint_ns text, channel text, version text, type text NOT NULL, blob bytea,
  PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
CREATE TABLE reference_writes (thread_id text, checkpoint_ns text, checkpoint_id text, task_id text, idx int, channel text NOT NULL, type text,
  blob bytea NOT NULL, task_path text NOT NULL, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
CREATE INDEX ON reference_checkpoints (thread_id);
CREATE INDEX ON reference_blobs (thread_id);
CREATE INDEX ON reference_writes (thread_id);
