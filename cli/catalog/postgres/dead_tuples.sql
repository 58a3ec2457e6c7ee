-- The estimated number of the dead rows of a table.
SELECT CAST(n_dead_tup AS TEXT) FROM pg_stat_all_tables WHERE pg_table_is_visible(relid) AND relname = ?
