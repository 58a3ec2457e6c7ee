-- Whether there is a schema of this name. The tool attaches no database.
SELECT '1' FROM pragma_database_list WHERE name = ?
