SAVEPOINT diesel_sharded;
{fold};
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT {message} CHECK (fits));
SELECT unfit FROM temp.diesel_sharded_unfit WHERE unfit IS NOT NULL;
INSERT INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
-- For a program that has gone on after that error: everything is as it was.
INSERT OR ROLLBACK INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
DROP TABLE {shards};
DROP TABLE temp.diesel_sharded_fits;
DROP TABLE temp.diesel_sharded_unfit;
DROP TABLE temp.diesel_sharded_totals;
RELEASE diesel_sharded
