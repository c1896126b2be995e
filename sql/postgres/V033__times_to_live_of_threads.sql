-- Threads that expire some time after their last change. `expires_at` is when to look at one next: the moment itself
-- follows from its times, so that changes of threads need not move it.
ALTER TABLE threads ADD COLUMN ttl_minutes double precision;
ALTER TABLE threads ADD COLUMN ttl_strategy text;        -- delete | keep_latest
ALTER TABLE threads ADD COLUMN expires_at timestamptz;
CREATE INDEX threads_expiry ON threads (expires_at) WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
