-- The database to whose tables plain names lead.
SELECT CAST(DATABASE() AS CHAR)
