-- The names of the triggers on two tables.
SELECT CAST(TRIGGER_NAME AS CHAR)
FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE IN (?, ?)
