-- Requests that take effect once, and tables that are derived from events and can be rebuilt.

-- An answer is kept for a day; without one the request is being carried out by a process.
ALTER TABLE idempotency_keys
  DROP COLUMN status,
  ADD COLUMN claim_id uuid NOT NULL,      -- who may answer
  ADD COLUMN first_id uuid NOT NULL,      -- the first claim of this request, and the id of its run
  ADD COLUMN worker_id uuid NOT NULL;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- A projection is behind when the thread has more events than it has read: no mark is needed.
ALTER TABLE projection_offsets DROP COLUMN dirty, DROP CONSTRAINT projection_offsets_pkey,
  ADD PRIMARY KEY (thread_id, projection);

-- What happened in a thread, in words a list can show.
CREATE TABLE thread_timeline (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  event_type text NOT NULL,
  branch_id uuid,
  checkpoint_id uuid,
  message_id text,
  preview text,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
);

-- One row per thread: its newest message and how much there is.
CREATE TABLE thread_heads (
  tree_id uuid,
  thread_id uuid,
  event_number bigint NOT NULL,           -- the newest event it knows of
  messages bigint NOT NULL,               -- added on any branch
  branches bigint NOT NULL,
  runs bigint NOT NULL,
  last_message_id text,
  last_role text,
  last_preview text,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tree_id, thread_id)
) WITH (fillfactor = 80);

-- From a thread to its forks.
CREATE TABLE fork_index (
  tree_id uuid,
  parent_thread_id uuid,
  thread_id uuid,
  from_event_number bigint NOT NULL,
  fork_checkpoint_id uuid,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (tree_id, parent_thread_id, thread_id)
);
CREATE INDEX fork_index_thread ON fork_index (thread_id);

-- Words of messages, in lower case.
CREATE TABLE search (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  message_id text,
  role text,
  text text NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
);
