{one_alone};
IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass({child_text})) THEN
    RAISE EXCEPTION USING MESSAGE = {inherits};
END IF;
-- What a counted table that was dropped has left.
IF EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass({of_parent}) AND tgname = {left}) THEN
    DROP TRIGGER {rename} ON {parent};
END IF;
{create};
CREATE TRIGGER {insert} AFTER INSERT ON {child} REFERENCING NEW TABLE AS sharded_new
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER {update} AFTER UPDATE ON {child} REFERENCING OLD TABLE AS sharded_old NEW TABLE AS sharded_new
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER {delete} AFTER DELETE ON {child} REFERENCING OLD TABLE AS sharded_old
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER {truncate} BEFORE TRUNCATE ON {child}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER {rename} BEFORE UPDATE OF {names} ON {parent}
    FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) EXECUTE FUNCTION {function}();
