-- The statistics that the database keeps about the number of a table's rows, if it keeps any. The text begins with that number.
SELECT CAST(MAX(CAST(stat AS INTEGER)) AS TEXT) FROM sqlite_stat1 WHERE tbl = ?
