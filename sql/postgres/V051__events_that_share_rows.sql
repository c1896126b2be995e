-- Two events of a run that follow each other in one transaction share a row, which has the number of the second.
COMMENT ON COLUMN events.kind IS 'The type, as the program numbers them (src/tree/event/codes.rs). 19 is RunEnqueued and RunStarted, 20 CheckpointCreated and RunFinished: the first of both has the number before that of the row.';
