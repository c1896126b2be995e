-- The graph and the assistant that the metadata of a run's checkpoints begins with. The text of checkpoints that are
-- there keeps them, and is read.
ALTER TABLE checkpoints ADD COLUMN graph_id TEXT;     -- NULL: the metadata has all of it
ALTER TABLE checkpoints ADD COLUMN assistant_id BLOB; -- NULL beside a graph: the one that the server makes for the graph
