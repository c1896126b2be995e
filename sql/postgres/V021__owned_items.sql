-- Items of long-term memory have owners. What was stored before belongs to the principal of servers
-- without keys; '' owns what the author of the graphs made common to all.

ALTER TABLE store_items ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT 'local';
ALTER TABLE store_items ALTER COLUMN owner DROP DEFAULT;
ALTER TABLE store_items DROP CONSTRAINT store_items_pkey;
ALTER TABLE store_items ADD PRIMARY KEY (owner, namespace, key);
