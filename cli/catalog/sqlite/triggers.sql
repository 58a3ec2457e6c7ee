-- The names of all triggers.
SELECT name FROM sqlite_master WHERE type = 'trigger'
