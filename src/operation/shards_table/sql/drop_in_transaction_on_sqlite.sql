{fold};
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT {message} CHECK (fits));
INSERT INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
DROP TABLE {shards};
DROP TABLE temp.diesel_sharded_fits;
DROP TABLE temp.diesel_sharded_unfit;
DROP TABLE temp.diesel_sharded_totals
