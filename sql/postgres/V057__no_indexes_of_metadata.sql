-- No statement reads these: whether a page of assistants or crons is filtered by metadata at all is a parameter of its
-- statement, so that its plan is one for both. A change of a row need not write them.
DROP INDEX assistants_metadata, crons_metadata;
