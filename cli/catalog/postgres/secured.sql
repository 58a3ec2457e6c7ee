-- Which of two tables has row security.
SELECT c.relname::text FROM pg_class c
WHERE c.relrowsecurity AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?)
ORDER BY 1
