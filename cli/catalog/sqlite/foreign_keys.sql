-- Table, the foreign key's id, column, parent, the parent's column, the foreign key's name, its actions.
SELECT m.name, CAST(f.id AS TEXT), f."from", f."table", COALESCE(f."to", f."from"), '', f.on_delete, f.on_update
FROM sqlite_master AS m JOIN pragma_foreign_key_list(m.name) AS f
WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY m.name, f.id, f.seq
