SAVEPOINT diesel_sharded;
{drop_triggers};
CREATE TEMPORARY TABLE diesel_sharded_totals ({key}, {bases}, {sums});
CREATE TEMPORARY TABLE diesel_sharded_unfit (unfit);
ALTER TABLE {shards} RENAME TO {renamed};
INSERT INTO temp.diesel_sharded_totals
    {totals};
{update};
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE(({cache}), ({unfit}), ({orphan}));
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT {message} CHECK (fits));
SELECT unfit FROM temp.diesel_sharded_unfit WHERE unfit IS NOT NULL;
INSERT INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
-- For a program that has gone on after that error: everything is as it was.
INSERT OR ROLLBACK INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
DROP TABLE {dropped};
DROP TABLE temp.diesel_sharded_fits;
DROP TABLE temp.diesel_sharded_unfit;
DROP TABLE temp.diesel_sharded_totals;
RELEASE diesel_sharded
