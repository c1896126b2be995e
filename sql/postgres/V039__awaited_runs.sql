-- Somebody waits at another process for the end of a temporary run: its result outlives the run.
ALTER TABLE runs ADD COLUMN awaited boolean NOT NULL DEFAULT false;
ALTER TABLE ended_runs ADD COLUMN result text;
