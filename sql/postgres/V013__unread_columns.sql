-- Nothing reads these.
ALTER TABLE runs DROP COLUMN input, DROP COLUMN idempotency_key;
ALTER TABLE workers DROP COLUMN draining;
