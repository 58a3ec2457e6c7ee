SET @diesel_sharded_cache = 'not checked', @diesel_sharded_row = 'not checked', @diesel_sharded_orphan = 'not checked',
    @diesel_sharded_unfit = 'not checked', @diesel_sharded_autocommit = @@autocommit;
SET autocommit = 0;
LOCK TABLES {parent} WRITE, {shards} WRITE;
CREATE TEMPORARY TABLE `diesel_sharded_totals` (PRIMARY KEY ({primary_key})) ENGINE = InnoDB AS
    {totals};
{update};
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them. Else all this is rolled back.
SET @diesel_sharded_cache = ({cache});
SET @diesel_sharded_row = ({unfit});
SET @diesel_sharded_orphan = ({orphan});
-- A check that was interrupted may be NULL without an error: nothing fits but what was found empty.
SET @diesel_sharded_unfit = IF(CONCAT(@diesel_sharded_cache, @diesel_sharded_row, @diesel_sharded_orphan) = '', NULL,
    COALESCE(NULLIF(@diesel_sharded_cache, ''), NULLIF(@diesel_sharded_row, ''), NULLIF(@diesel_sharded_orphan, ''), 'not checked'));
DELETE FROM {shards};
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, 'COMMIT', 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
ROLLBACK;
DROP TEMPORARY TABLE `diesel_sharded_totals`;
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, {drop}, 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
DEALLOCATE PREPARE diesel_sharded;
UNLOCK TABLES;
SET autocommit = @diesel_sharded_autocommit;
-- Fails by a duplicate that names a row, if one did not fit.
CREATE TEMPORARY TABLE `diesel_sharded_unfit` (PRIMARY KEY (unfit)) ENGINE = InnoDB AS
    SELECT CAST(@diesel_sharded_unfit AS CHAR(180)) AS unfit FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE @diesel_sharded_unfit IS NOT NULL;
DROP TEMPORARY TABLE `diesel_sharded_unfit`
