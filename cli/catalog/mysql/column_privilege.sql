-- The same for one of its columns.
SELECT CASE WHEN
    EXISTS (
        SELECT 1 FROM information_schema.COLUMN_PRIVILEGES v
        WHERE REPLACE(v.GRANTEE, '''', '') = CURRENT_USER() AND v.COLUMN_NAME = ? AND v.PRIVILEGE_TYPE = ? AND v.TABLE_NAME = ?
            AND v.TABLE_SCHEMA = ?
    )
THEN '1' ELSE '0' END
