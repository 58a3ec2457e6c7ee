-- The statistics that the database keeps about the number of a table's rows, if it keeps any.
SELECT CAST(CAST(reltuples AS BIGINT) AS TEXT) FROM pg_class WHERE reltuples >= 0 AND pg_table_is_visible(oid) AND relname = ?
