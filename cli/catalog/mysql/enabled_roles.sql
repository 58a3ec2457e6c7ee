-- The roles that are enabled in this session.
SELECT CAST(ROLE_NAME AS CHAR) FROM information_schema.ENABLED_ROLES
