-- The message index and the events in a form that costs little per message. Nothing has written
-- these tables before, so they are made anew.

DROP TABLE events;
DROP TABLE message_nodes;

-- References only: content is in the checkpoint's messages channel. Columns of fixed width lead.
CREATE TABLE message_nodes (
  tree_id uuid,
  node_id uuid,
  parent_node_id uuid,                    -- previous 'add' node on the path
  checkpoint_id uuid NOT NULL,            -- first checkpoint with it
  settled_checkpoint_id uuid,             -- set at run end or interrupt, on the run's last message
  thread_id uuid NOT NULL,
  branch_id uuid NOT NULL,
  run_id uuid,
  event_number bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  ordinal int NOT NULL,                   -- 1-based position in the chain of adds; of edits and removals that of the add before
  depth int NOT NULL,
  seq int NOT NULL,                       -- place among the nodes of that checkpoint, from 0
  kind text NOT NULL CHECK (kind IN ('add', 'edit', 'remove')),
  message_id text NOT NULL,
  edit_of text,                           -- the id this one replaces
  role text,
  PRIMARY KEY (tree_id, node_id)
);
CREATE INDEX message_nodes_message ON message_nodes (tree_id, message_id);
CREATE INDEX message_nodes_parent ON message_nodes (tree_id, parent_node_id) WHERE kind = 'add';
CREATE INDEX message_nodes_checkpoint ON message_nodes (tree_id, checkpoint_id);

-- Business events, insert-only. An event's id follows from thread and number, and what columns
-- and other rows say is not repeated in the payload.
CREATE TABLE events (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  branch_id uuid,
  checkpoint_id uuid,
  run_id uuid,
  kind smallint NOT NULL,                 -- the program names them: 1 ThreadCreated, 2 ThreadForked, 3 UserMessageAdded,
                                          -- 4 LLMResponseGenerated, 5 MessageAdded, 6 MessageEdited, 7 MessageRemoved,
                                          -- 8 CheckpointCreated, 9 BranchCreated, 10 BranchActivated, 11 BranchHeadReset,
                                          -- 12 BranchRenamed, 13 BranchDeleted, 14 TagSet, 15 TagDeleted, 16 RunEnqueued,
                                          -- 17 RunStarted, 18 RunFinished
  message_id text,
  payload jsonb,                          -- small facts that no column holds; NULL = none
  PRIMARY KEY (tree_id, thread_id, event_number)
);
CREATE TRIGGER events_immutable BEFORE UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION events_immutable();
