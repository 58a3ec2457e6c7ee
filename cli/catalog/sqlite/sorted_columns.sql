-- The columns of a table with which an index begins that can sort all rows by them. The column of an index on an expression has no name.
SELECT c.name FROM pragma_index_list(?) AS l JOIN pragma_index_info(l.name) AS c ON c.seqno = 0 WHERE l.partial = 0
