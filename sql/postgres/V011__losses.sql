-- How often the process of a run died; one that hands its runs over at shutdown has not died.
ALTER TABLE runs ADD COLUMN losses integer NOT NULL DEFAULT 0;
