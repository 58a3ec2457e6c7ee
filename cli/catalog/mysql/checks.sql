-- The names of the CHECKs of a table, and what they say. MariaDB names the table beside the constraint, MySQL in another view.
SELECT CAST(k.CONSTRAINT_NAME AS CHAR), CAST(k.CHECK_CLAUSE AS CHAR)
FROM information_schema.CHECK_CONSTRAINTS k
    /*!80016 JOIN information_schema.TABLE_CONSTRAINTS t ON t.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA
        AND t.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND t.CONSTRAINT_TYPE = 'CHECK' */
WHERE k.CONSTRAINT_SCHEMA = DATABASE() AND /*M!100300 k. */ /*!80016 t. */ TABLE_NAME = ?
ORDER BY k.CONSTRAINT_NAME
