-- Both databases note in the row of a run whether it opened its branch.
ALTER TABLE runs ADD COLUMN opened_branch INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET opened_branch = 1 WHERE EXISTS (SELECT 1 FROM branches b
  WHERE b.tree_id = runs.tree_id AND b.branch_id = runs.branch_id AND b.run_id = runs.run_id);
ALTER TABLE branches DROP COLUMN run_id;

-- Nothing reads these.
ALTER TABLE runs DROP COLUMN input;
ALTER TABLE runs DROP COLUMN idempotency_key;
ALTER TABLE workers DROP COLUMN draining;
ALTER TABLE workers DROP COLUMN lease_until;
