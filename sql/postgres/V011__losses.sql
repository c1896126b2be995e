-- How often the process of a run died while the run stood where it stands; one that hands its runs
-- over at shutdown has not died.
ALTER TABLE runs ADD COLUMN losses integer NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN lost_at uuid;   -- head of its branch when that happened last
