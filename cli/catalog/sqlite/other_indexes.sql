-- The indexes of a table beside its primary key.
SELECT l.name FROM pragma_table_list AS t JOIN pragma_index_list(t.name) AS l WHERE l.origin <> 'pk' AND t.name = ?
