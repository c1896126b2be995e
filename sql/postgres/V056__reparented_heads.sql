-- The head of a branch, once pruning has given it another parent: nothing else changes the row of a checkpoint, so that
-- another head is what the run that made it remembers.
ALTER TABLE branches ADD COLUMN reparented_checkpoint_id uuid;
