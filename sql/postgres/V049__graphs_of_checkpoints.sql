-- The graph and the assistant that the metadata of a run's checkpoints begins with. The text of checkpoints that are
-- there keeps them, and is read; the table is not written anew.
ALTER TABLE checkpoints
  ADD COLUMN graph_id text COLLATE "C",   -- NULL: the metadata has all of it
  ADD COLUMN assistant_id uuid;           -- NULL beside a graph: the one that the server makes for the graph
