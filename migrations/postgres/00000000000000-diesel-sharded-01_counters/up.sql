DO $diesel_sharded$
BEGIN

-- Named counters: the base, as in any table with a sharded field. Names are bytes, so that no collation makes two of them one.
CREATE TABLE "diesel_sharded_counters" (
    "name" BYTEA NOT NULL PRIMARY KEY,
    "value" BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE "diesel_sharded_counter_shards" (
    "name" BYTEA NOT NULL,
    "shard" INTEGER NOT NULL,
    "value" BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY ("name", "shard"),
    FOREIGN KEY ("name") REFERENCES "diesel_sharded_counters" ("name") ON UPDATE CASCADE ON DELETE CASCADE
) WITH (fillfactor = 90);

-- Numbers of shards that were changed while writers run: of a sharded field, or of a named counter.
CREATE TABLE "diesel_sharded_shard_numbers" (
    "shards_table" BYTEA NOT NULL,
    "counter" BYTEA NOT NULL,
    "shards" INTEGER NOT NULL,
    PRIMARY KEY ("shards_table", "counter")
);

END
$diesel_sharded$;
