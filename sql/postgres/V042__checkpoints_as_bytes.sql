-- What a checkpoint holds beside its columns is bytes of the codec now: a jsonb costs a superstep a
-- quarter of its time. What statements need of it, the versions of the values that are rows of their
-- own, has a column. The JSON text of checkpoints that are there stays, and is read. Metadata is JSON
-- text, parsed when somebody filters by it.
ALTER TABLE checkpoints ADD COLUMN blob_versions jsonb NOT NULL DEFAULT '{}';
UPDATE checkpoints SET blob_versions = checkpoint->'channel_versions'
 WHERE jsonb_typeof(checkpoint->'channel_versions') = 'object';
ALTER TABLE checkpoints
  ALTER COLUMN checkpoint TYPE bytea USING convert_to(checkpoint::text, 'UTF8'),
  ALTER COLUMN metadata TYPE text USING metadata::text;
