-- What the statements said that created a table and its triggers.
SELECT type, name, sql FROM sqlite_master
WHERE type IN ('table', 'trigger') AND lower(tbl_name) = lower(?) AND sql IS NOT NULL
ORDER BY name
