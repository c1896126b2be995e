-- What an event tells stays the same while branches are renamed and checkpoints go.

-- The events that say how a branch was called, by branch.
CREATE INDEX events_names ON events (tree_id, branch_id, event_number) WHERE kind IN (9, 12, 13);

-- What events tell of checkpoints and messages that are gone or were moved since.
CREATE TABLE event_facts (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  facts jsonb NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
);
