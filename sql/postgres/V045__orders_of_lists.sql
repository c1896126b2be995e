-- Lists of one owner's threads by creation and by id go by an index. Neither column ever changes: what moves the
-- time of a thread writes an entry here as in every other index, and updates within a page cost nothing. The odd
-- place of NULLs, of which there are none, is that of no other index: only these have the order of those lists, so
-- that no plan walks everybody's threads in search of those of one owner. Deleted threads are in them, as in other
-- indexes: what is smaller draws statements to itself on a database that has no statistics yet.
CREATE INDEX threads_created_of_owner ON threads (owner, created_at NULLS FIRST, thread_id NULLS FIRST);
CREATE INDEX threads_ids_of_owner ON threads (owner, thread_id NULLS FIRST);
