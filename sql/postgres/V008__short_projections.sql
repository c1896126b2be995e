-- Derived tables repeat nothing of the event they stand for: the key leads to it, and `search`
-- holds the text a preview is cut from. They are built anew.
DROP TABLE thread_timeline;
DROP TABLE search;

-- What a list of a thread's history shows: its messages and what befell its branches, without
-- the steps of runs that went well.
CREATE TABLE thread_timeline (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,
  kind smallint NOT NULL,                 -- as in events
  PRIMARY KEY (tree_id, thread_id, event_number)
);

-- Words of messages, in lower case.
CREATE TABLE search (
  tree_id uuid,
  thread_id uuid,
  event_number bigint,                    -- the event that brought or changed the message
  text text NOT NULL,
  PRIMARY KEY (tree_id, thread_id, event_number)
);

DELETE FROM projection_offsets WHERE projection IN ('thread_timeline', 'search');
