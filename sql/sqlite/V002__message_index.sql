-- The message index and the events in a form that costs little per message. Nothing has written
-- these tables before, so they are made anew.

DROP TABLE events;
DROP TABLE message_nodes;

-- References only: content is in the checkpoint's messages channel.
CREATE TABLE message_nodes (
  tree_id BLOB NOT NULL,
  node_id BLOB NOT NULL,
  parent_node_id BLOB,                      -- previous 'add' node on the path
  ordinal INTEGER NOT NULL,                 -- 1-based position in the chain of adds; of edits and removals that of the add before
  kind TEXT NOT NULL CHECK (kind IN ('add', 'edit', 'remove')),
  message_id TEXT NOT NULL,
  edit_of TEXT,                             -- id this one replaces
  checkpoint_id BLOB NOT NULL,              -- first checkpoint with it
  depth INTEGER NOT NULL,
  seq INTEGER NOT NULL,                     -- place among the nodes of that checkpoint, from 0
  settled_checkpoint_id BLOB,               -- set at run end or interrupt, on the run's last message
  thread_id BLOB NOT NULL,
  branch_id BLOB NOT NULL,
  run_id BLOB,
  role TEXT,
  event_number INTEGER,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, node_id)
) WITHOUT ROWID;
CREATE INDEX message_nodes_message ON message_nodes (tree_id, message_id);
CREATE INDEX message_nodes_parent ON message_nodes (tree_id, parent_node_id) WHERE kind = 'add';
CREATE INDEX message_nodes_checkpoint ON message_nodes (tree_id, checkpoint_id);

-- Business events, gapless per thread. An event's id follows from thread and number, and what
-- columns and other rows say is not repeated in the payload.
CREATE TABLE events (
  tree_id BLOB NOT NULL,
  thread_id BLOB NOT NULL,
  event_number INTEGER NOT NULL,
  kind INTEGER NOT NULL,                    -- the program names them: 1 ThreadCreated, 2 ThreadForked, 3 UserMessageAdded,
                                            -- 4 LLMResponseGenerated, 5 MessageAdded, 6 MessageEdited, 7 MessageRemoved,
                                            -- 8 CheckpointCreated, 9 BranchCreated, 10 BranchActivated, 11 BranchHeadReset,
                                            -- 12 BranchRenamed, 13 BranchDeleted, 14 TagSet, 15 TagDeleted, 16 RunEnqueued,
                                            -- 17 RunStarted, 18 RunFinished
  payload TEXT,                             -- small facts that no column holds; NULL = none
  branch_id BLOB,
  checkpoint_id BLOB,
  run_id BLOB,
  message_id TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
) WITHOUT ROWID;
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are immutable'); END;
CREATE TRIGGER events_never_go BEFORE DELETE ON events
WHEN (SELECT open FROM purge_switch) = 0
BEGIN SELECT RAISE(ABORT, 'events are immutable'); END;
