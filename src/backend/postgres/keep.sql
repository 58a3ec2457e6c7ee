#variable_conflict use_column
BEGIN
IF TG_NARGS > 0 THEN
PERFORM 1 FROM {parent} WHERE {new_row} FOR KEY SHARE;
IF NOT FOUND THEN
RAISE foreign_key_violation USING MESSAGE = {gone};
END IF;
ELSIF TG_OP = 'DELETE' THEN
DELETE FROM {shards} WHERE {old_shards};
ELSIF TG_OP = 'UPDATE' THEN
IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
RAISE EXCEPTION USING MESSAGE = {isolation};
END IF;
UPDATE {shards} SET {renamed} WHERE {old_shards};
ELSE
TRUNCATE {shards};
END IF;
RETURN NULL;
END
