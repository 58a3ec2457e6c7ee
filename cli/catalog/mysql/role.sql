-- The account of this session, as GRANT takes it. Its name may have an `@`, its host has none.
SELECT CONCAT(
    '''', REPLACE(LEFT(account, CHAR_LENGTH(account) - CHAR_LENGTH(host) - 1), '''', ''''''), '''@''', REPLACE(host, '''', ''''''), ''''
)
FROM (
    SELECT CAST(CURRENT_USER() AS CHAR) AS account, CAST(SUBSTRING_INDEX(CURRENT_USER(), '@', -1) AS CHAR) AS host
) AS own
