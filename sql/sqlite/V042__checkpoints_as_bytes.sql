-- What a checkpoint holds beside its columns is bytes of the codec now. What statements need of it,
-- the versions of the values that are rows of their own, has a column. The JSON text of checkpoints
-- that are there stays, and is read.
ALTER TABLE checkpoints ADD COLUMN blob_versions TEXT NOT NULL DEFAULT '{}';
UPDATE checkpoints SET blob_versions = json_extract(checkpoint, '$.channel_versions')
 WHERE json_type(checkpoint, '$.channel_versions') = 'object';
