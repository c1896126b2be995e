-- Nothing reads these: texts of messages are in the channels of checkpoints, and a thread's history is its events.
DROP TABLE search;
DROP TABLE thread_timeline;
DELETE FROM projection_offsets WHERE projection IN ('search', 'thread_timeline');
