SAVEPOINT diesel_sharded;

-- The last batch that each coalescer has committed, by which it learns what became of a COMMIT that was never answered.
CREATE TABLE `diesel_sharded_batches` (
    `coalescer` BLOB NOT NULL PRIMARY KEY,
    `batch` BIGINT NOT NULL,
    `written` BIGINT NOT NULL -- seconds since 1970, by the client's clock
) WITHOUT ROWID;

RELEASE diesel_sharded;
