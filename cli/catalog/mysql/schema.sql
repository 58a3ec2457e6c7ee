-- Whether there is a schema of this name.
SELECT '1' FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?
