-- Tombstones by age: one without content goes after 30 days.
CREATE INDEX threads_deleted ON threads (deleted_at) WHERE deleted_at IS NOT NULL;
