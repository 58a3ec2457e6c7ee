-- Table, what it is (`table`, `engine` of a table that has another one than InnoDB, or what it is else), column, type, whether it is NOT NULL, whether it is generated, its place in the primary key, its collation, its default.
SELECT CAST(t.TABLE_NAME AS CHAR),
    CASE WHEN t.TABLE_TYPE = 'VIEW' THEN 'a view' WHEN t.TABLE_TYPE <> 'BASE TABLE' THEN 'no base table'
        WHEN t.ENGINE = 'InnoDB' THEN 'table' ELSE CONCAT('engine ', COALESCE(t.ENGINE, '')) END,
    CAST(c.COLUMN_NAME AS CHAR), CAST(c.COLUMN_TYPE AS CHAR), IF(c.IS_NULLABLE = 'NO', '1', '0'),
    IF(COALESCE(c.GENERATION_EXPRESSION, '') = '', '0', '1'), CAST(k.ORDINAL_POSITION AS CHAR),
    IF(c.COLLATION_NAME <> @@collation_database,
        CONCAT('CHARACTER SET ', c.CHARACTER_SET_NAME, ' COLLATE ', c.COLLATION_NAME), NULL),
    CAST(c.COLUMN_DEFAULT AS CHAR)
FROM information_schema.TABLES t
    JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
    LEFT JOIN information_schema.KEY_COLUMN_USAGE k ON k.TABLE_SCHEMA = c.TABLE_SCHEMA
        AND k.TABLE_NAME = c.TABLE_NAME AND k.COLUMN_NAME = c.COLUMN_NAME AND k.CONSTRAINT_NAME = 'PRIMARY'
WHERE t.TABLE_SCHEMA = DATABASE()
ORDER BY t.TABLE_NAME, c.ORDINAL_POSITION
