-- How many supersteps of nodes the graph of a checkpoint had done in its run by then: who takes the
-- run over counts on from there.
ALTER TABLE checkpoints ADD COLUMN run_supersteps int NOT NULL DEFAULT 0;
