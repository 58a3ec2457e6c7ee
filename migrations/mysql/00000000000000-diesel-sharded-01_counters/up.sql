-- Named counters: the base, as in any table with a sharded field. Names are bytes, so that no collation makes two of them one.
CREATE TABLE `diesel_sharded_counters` (
    `name` VARBINARY(255) NOT NULL PRIMARY KEY,
    `value` BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

CREATE TABLE `diesel_sharded_counter_shards` (
    `name` VARBINARY(255) NOT NULL,
    `shard` INTEGER NOT NULL,
    `value` BIGINT NOT NULL DEFAULT 0 CHECK (`value` BETWEEN -9223372036854775807 AND 9223372036854775807),
    PRIMARY KEY (`name`, `shard`),
    FOREIGN KEY (`name`) REFERENCES `diesel_sharded_counters` (`name`) ON UPDATE CASCADE ON DELETE CASCADE
) ENGINE = InnoDB;

-- Numbers of shards that were changed while writers run: of a sharded field, or of a named counter.
CREATE TABLE `diesel_sharded_shard_numbers` (
    `shards_table` VARBINARY(255) NOT NULL,
    `counter` VARBINARY(256) NOT NULL, -- a byte more than the longest name
    `shards` INTEGER NOT NULL,
    PRIMARY KEY (`shards_table`, `counter`)
) ENGINE = InnoDB;
