-- Which of two tables has triggers that are switched off.
SELECT DISTINCT c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE t.tgenabled = 'D' AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?)
ORDER BY 1
