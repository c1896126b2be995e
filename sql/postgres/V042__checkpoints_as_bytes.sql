-- What a checkpoint holds beside its columns is bytes of the codec now: a jsonb costs a superstep a
-- quarter of its time. What statements need of it, the versions of the values that are rows of their
-- own, has a column. The JSON text of checkpoints that are there stays, and is read. Metadata is JSON
-- text, parsed when somebody filters by it. The table is written anew once.
ALTER TABLE checkpoints ADD COLUMN blob_versions jsonb;
ALTER TABLE checkpoints
  ALTER COLUMN blob_versions TYPE jsonb USING
    CASE jsonb_typeof(checkpoint->'channel_versions') WHEN 'object' THEN checkpoint->'channel_versions' ELSE '{}' END,
  ALTER COLUMN checkpoint TYPE bytea USING convert_to(checkpoint::text, 'UTF8'),
  ALTER COLUMN metadata TYPE text USING metadata::text;
ALTER TABLE checkpoints ALTER COLUMN blob_versions SET DEFAULT '{}', ALTER COLUMN blob_versions SET NOT NULL;
