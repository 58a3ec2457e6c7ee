-- Whether this user has a privilege on a table. The views show the privileges of others too to a user that may see them.
SELECT CASE WHEN
    EXISTS (
        SELECT 1 FROM information_schema.TABLE_PRIVILEGES v
        WHERE REPLACE(v.GRANTEE, '''', '') = CURRENT_USER() AND v.PRIVILEGE_TYPE = ? AND v.TABLE_NAME = ? AND v.TABLE_SCHEMA = ?
    )
    OR EXISTS (
        SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES v
        WHERE REPLACE(v.GRANTEE, '''', '') = CURRENT_USER() AND ? LIKE v.TABLE_SCHEMA AND v.PRIVILEGE_TYPE = ?
    )
    OR EXISTS (
        SELECT 1 FROM information_schema.USER_PRIVILEGES v
        WHERE REPLACE(v.GRANTEE, '''', '') = CURRENT_USER() AND v.PRIVILEGE_TYPE = ?
    )
THEN '1' ELSE '0' END
