-- Many crons are due at the same time, such as the full hour: their order goes on by id, so that each page of them
-- begins where the last one ended.
DROP INDEX crons_due;
CREATE INDEX crons_due ON crons (next_run_at, cron_id) WHERE enabled AND next_run_at IS NOT NULL;
