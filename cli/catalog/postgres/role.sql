-- The role of this session, as GRANT takes it.
SELECT CAST(quote_ident(current_user) AS TEXT)
