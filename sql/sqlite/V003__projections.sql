-- Requests that take effect once, and tables that are derived from events and can be rebuilt.

-- An answer is kept for a day; without one the request is being carried out by a process.
CREATE TABLE idempotency_keys (
  principal TEXT NOT NULL,
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,               -- of method, path and body
  claim_id BLOB NOT NULL,                   -- who may answer
  first_id BLOB NOT NULL,                   -- the first claim of this request, and the id of its run
  worker_id BLOB NOT NULL,
  response BLOB,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (principal, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- How far a projection has read a thread's events. It is behind when the thread has more.
CREATE TABLE projection_offsets (
  projection TEXT NOT NULL,
  thread_id BLOB NOT NULL,
  tree_id BLOB NOT NULL,
  last_event_number INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (thread_id, projection)
) WITHOUT ROWID;

-- What happened in a thread, in words a list can show.
CREATE TABLE thread_timeline (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  event_number INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  branch_id BLOB,
  checkpoint_id BLOB,
  message_id TEXT,
  preview TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
) WITHOUT ROWID;

-- One row per thread: its newest message and how much there is.
CREATE TABLE thread_heads (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  event_number INTEGER NOT NULL,            -- the newest event it knows of
  messages INTEGER NOT NULL,                -- added on any branch
  branches INTEGER NOT NULL,
  runs INTEGER NOT NULL,
  last_message_id TEXT,
  last_role TEXT,
  last_preview TEXT,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, thread_id)
) WITHOUT ROWID;

-- From a thread to its forks.
CREATE TABLE fork_index (
  tree_id BLOB NOT NULL,
  parent_thread_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  from_event_number INTEGER NOT NULL,
  fork_checkpoint_id BLOB,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, parent_thread_id, thread_id)
) WITHOUT ROWID;
CREATE INDEX fork_index_thread ON fork_index (thread_id);

-- Words of messages, in lower case.
CREATE TABLE search (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  event_number INTEGER NOT NULL,
  message_id TEXT,
  role TEXT,
  text TEXT NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
) WITHOUT ROWID;
