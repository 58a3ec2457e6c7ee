-- What reads a column of a table: kind, name, definition, and whether the catalog knows it: `1` where it does, `0` where only the
-- definition can tell, `own` where it is the table's own, whose definition need not name the table; then names in the definition that
-- stand for rows of the table, or for tables of them. Binds: the table, the column.
-- An expression that takes whole rows depends on the table alone; there is a variable of the row's type in its tree.
WITH subject AS (
    SELECT c.oid AS rel, a.attnum AS place, a.attname AS field, '%:varattno 0 :vartype ' || c.reltype || ' %' AS whole,
        ARRAY[t.oid, t.typarray] AS types
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = c.reltype
    WHERE pg_table_is_visible(c.oid) AND a.attnum > 0 AND NOT a.attisdropped AND c.relname = ? AND a.attname = ?
), dependent AS (
    SELECT d.classid, d.objid, bool_or(d.refobjsubid = s.place) AS named
    FROM subject s JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = s.rel
    GROUP BY d.classid, d.objid
), publishing AS (
    -- For a partitioned table that is not published as a whole its partitions are.
    SELECT t.pubname
    FROM (SELECT rel, field FROM subject UNION SELECT relid, field FROM subject, pg_partition_tree(rel)) part
        JOIN pg_class c ON c.oid = part.rel JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname
    WHERE part.field = ANY (t.attnames)
), found AS (
    -- Views are rules too.
    SELECT CASE WHEN r.rulename <> '_RETURN' THEN 'rule' WHEN c.relkind = 'm' THEN 'materialized view' ELSE 'view' END AS kind,
        CASE WHEN r.rulename = '_RETURN' THEN c.relnamespace END AS schema,
        CASE WHEN r.rulename = '_RETURN' THEN c.relname ELSE r.rulename END AS name,
        CASE WHEN r.rulename <> '_RETURN' THEN NULLIF(c.oid, s.rel) END AS on_table,
        CASE WHEN r.rulename = '_RETURN' THEN pg_get_viewdef(c.oid) ELSE pg_get_ruledef(r.oid) END AS definition, '1' AS certain,
        NULL AS rows
    FROM subject s JOIN dependent d ON d.classid = 'pg_rewrite'::regclass
        JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class
    WHERE d.named OR r.ev_action::text LIKE s.whole OR r.ev_qual::text LIKE s.whole
    UNION ALL
    -- The catalog knows all of a function with an SQL body, but for rows that are its arguments. One in C has no text, and one of the
    -- table's triggers is in theirs.
    SELECT CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.pronamespace,
        p.proname || '(' || oidvectortypes(p.proargtypes) || ')', NULL, COALESCE(pg_get_function_sqlbody(p.oid), p.prosrc),
        CASE WHEN known THEN '1' WHEN arguments.rows IS NULL THEN '0' ELSE 'own' END, arguments.rows
    FROM subject s CROSS JOIN pg_proc p JOIN pg_language l ON l.oid = p.prolang
        LEFT JOIN dependent d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        CROSS JOIN LATERAL (SELECT COALESCE(d.named OR p.prosqlbody::text LIKE s.whole, FALSE) AS known) k
        CROSS JOIN LATERAL (SELECT string_agg(concat_ws(' ', '$' || n, p.proargnames[n]), ' ') AS rows
            FROM unnest(COALESCE(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY AS a(type, n)
            WHERE a.type = ANY (s.types)) arguments
    WHERE p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND p.prokind <> 'a'
        AND CASE WHEN p.prosqlbody IS NULL
            THEN l.lanname NOT IN ('internal', 'c')
                AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = s.rel AND t.tgfoid = p.oid)
            ELSE known OR arguments.rows IS NOT NULL END
        AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')
    UNION ALL
    -- The function is a part of the text. Where only that can tell, what stands before its name and arguments is left out.
    SELECT 'trigger', NULL, t.tgname, NULL,
        CASE WHEN known THEN pg_get_triggerdef(t.oid) ELSE substring(pg_get_triggerdef(t.oid) FROM 'EXECUTE FUNCTION.*') END
            || CASE WHEN l.lanname IN ('internal', 'c') THEN '' ELSE E'\n' || p.prosrc END,
        CASE WHEN known THEN '1' ELSE 'own' END, concat_ws(' ', 'new', 'old', t.tgnewtable, t.tgoldtable)
    FROM subject s JOIN pg_trigger t ON t.tgrelid = s.rel AND NOT t.tgisinternal
        JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
        LEFT JOIN dependent d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
        CROSS JOIN LATERAL (SELECT COALESCE(d.named OR t.tgqual::text LIKE s.whole, FALSE) AS known) k
    UNION ALL
    SELECT 'generated column', NULL, a.attname, NULL, pg_get_expr(e.adbin, e.adrelid), '1', NULL
    FROM subject s JOIN dependent d ON d.classid = 'pg_attrdef'::regclass AND d.named
        JOIN pg_attrdef e ON e.oid = d.objid AND e.adrelid = s.rel AND e.adnum <> s.place
        JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum AND a.attgenerated <> ''
    UNION ALL
    -- The index of a constraint depends on the constraint, not on the column.
    SELECT 'index', x.relnamespace, x.relname, NULL, pg_get_indexdef(i.indexrelid), '1', NULL
    FROM subject s JOIN pg_index i ON i.indrelid = s.rel AND NOT i.indisprimary JOIN pg_class x ON x.oid = i.indexrelid
        LEFT JOIN dependent d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
    WHERE s.place = ANY (i.indkey::int2[]) OR d.named OR i.indexprs::text LIKE s.whole OR i.indpred::text LIKE s.whole
    UNION ALL
    SELECT 'policy', NULL, p.polname, NULLIF(p.polrelid, s.rel),
        concat_ws(' ', 'USING (' || pg_get_expr(p.polqual, p.polrelid) || ')',
            'WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')'), '1', NULL
    FROM subject s JOIN dependent d ON d.classid = 'pg_policy'::regclass JOIN pg_policy p ON p.oid = d.objid
    WHERE d.named OR p.polqual::text LIKE s.whole OR p.polwithcheck::text LIKE s.whole
    UNION ALL
    -- With the column, or with rows that it chooses.
    SELECT 'publication', NULL, p.pubname, NULL, max(pg_get_expr(r.prqual, r.prrelid)), '1', NULL
    FROM subject s CROSS JOIN pg_publication p
        LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = s.rel
        LEFT JOIN dependent d ON d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid
    WHERE d.named OR p.pubname IN (SELECT pubname FROM publishing)
    GROUP BY p.pubname
)
SELECT f.kind,
    CASE WHEN fn.nspname <> COALESCE(current_schema(), '') THEN fn.nspname || '.' ELSE '' END || f.name
        || COALESCE(' ON ' || CASE WHEN tn.nspname <> COALESCE(current_schema(), '') THEN tn.nspname || '.' ELSE '' END || t.relname, ''),
    f.definition, f.certain, f.rows
FROM found f LEFT JOIN pg_namespace fn ON fn.oid = f.schema
    LEFT JOIN pg_class t ON t.oid = f.on_table LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace
ORDER BY 1, 2
