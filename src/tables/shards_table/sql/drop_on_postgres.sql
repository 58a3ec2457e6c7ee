    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING MESSAGE = {isolation};
    END IF;
    LOCK TABLE {parent}, {shards} IN ACCESS EXCLUSIVE MODE;
    IF row_security_active({seen}) THEN
        RAISE EXCEPTION USING MESSAGE = {hidden};
    END IF;
    unfit := ({cache});
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit;
    END IF;
    CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS
        {totals};
    {update};
    -- Each base has to be the one before plus its sum, and each shard has to have a row.
    unfit := ({unfit});
    unfit := COALESCE(unfit, ({orphan}));
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit, HINT = 'Nothing was changed. Look for a trigger, a policy, or a column that rounds or cuts what it is given.';
    END IF;
    DROP TABLE pg_temp.diesel_sharded_totals;
    -- A table that was created with triggers may be dropped as if it had none. Another schema may have a function of this name.
    SELECT tgfoid::regprocedure INTO keep FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgrelid IN ({seen}::regclass, {rows}::regclass) AND proname = {keep}
    ORDER BY tgrelid <> {seen}::regclass LIMIT 1;
    DROP TABLE {shards};
    IF keep IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || keep || ' CASCADE';
    END IF;
