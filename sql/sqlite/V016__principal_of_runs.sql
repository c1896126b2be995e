-- On whose behalf a run executes: whoever claims it checks that this principal may still write. NULL: the server itself, and
-- everybody while there are no keys.
ALTER TABLE runs ADD COLUMN principal TEXT;
