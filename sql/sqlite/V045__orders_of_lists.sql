-- Lists of one owner's threads by creation and by id go by an index. Neither column ever changes: only creating
-- and deleting a thread, or giving it to somebody else, writes here.
CREATE INDEX threads_created_of_owner ON threads (owner, created_at, thread_id) WHERE deleted_at IS NULL;
CREATE INDEX threads_ids_of_owner ON threads (owner, thread_id) WHERE deleted_at IS NULL;
