-- The head of a branch, once pruning has changed its parent. Nothing else changes the row of a checkpoint: a process that
-- has a head in memory shows that, unless the head is this one, whose row it has to read.
ALTER TABLE branches ADD COLUMN reparented_checkpoint_id BLOB;
