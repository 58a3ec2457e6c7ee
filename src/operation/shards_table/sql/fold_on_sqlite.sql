{drop_triggers};
CREATE TEMPORARY TABLE diesel_sharded_totals ({key}, {bases}, {sums});
CREATE TEMPORARY TABLE diesel_sharded_unfit (unfit);
{rename}INSERT INTO temp.diesel_sharded_totals
    {totals};
{update};
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE(({cache}), ({unfit}), ({orphan}))
