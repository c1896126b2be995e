-- The user of its thread that a run is for, as JSON, when its request named none and the thread had one.
ALTER TABLE runs ADD COLUMN thread_user TEXT;
