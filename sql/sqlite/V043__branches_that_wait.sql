-- Lists of threads by a status that few of them have find those by the branches that have it. A superstep does
-- not change the outcome of its branch, so that this index costs it nothing.
CREATE INDEX branches_outcome ON branches (outcome, thread_id) WHERE outcome <> 'idle';
