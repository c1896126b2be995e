-- A message that is removed takes all rows after it along, edits and removals too, not only those of
-- kind `add`.
DROP INDEX message_nodes_parent;
CREATE INDEX message_nodes_parent ON message_nodes (parent_node_id, tree_id);
