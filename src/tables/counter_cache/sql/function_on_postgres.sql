#variable_conflict use_column
DECLARE
    sharded_row RECORD;
    sharded_rows INTEGER := 0;
BEGIN
IF TG_LEVEL = 'ROW' THEN
-- A parent gets another key: children that follow it are counted by their own update.
{lock};
{rename};
RETURN NEW;
ELSIF TG_OP = 'INSERT' THEN
{insert};
ELSIF TG_OP = 'UPDATE' THEN
{update};
ELSIF TG_OP = 'DELETE' THEN
{delete};
ELSE
IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION USING MESSAGE = {isolation};
END IF;
{truncate};
END IF;
RETURN NULL;
END
