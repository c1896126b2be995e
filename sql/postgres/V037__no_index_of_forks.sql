-- Nothing reads it: the threads themselves tell what they were forked from.
DROP TABLE fork_index;
DELETE FROM projection_offsets WHERE projection = 'fork_index';
