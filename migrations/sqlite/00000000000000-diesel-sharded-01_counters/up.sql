SAVEPOINT diesel_sharded;

-- Named counters: the base, as in any table with a sharded field. Names are bytes, so that no collation makes two of them one.
CREATE TABLE `diesel_sharded_counters` (
    `name` BLOB NOT NULL PRIMARY KEY,
    `value` BIGINT NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE `diesel_sharded_counter_shards` (
    `name` BLOB NOT NULL,
    `shard` INTEGER NOT NULL,
    `value` BIGINT NOT NULL DEFAULT 0 CHECK (`value` BETWEEN -9223372036854775807 AND 9223372036854775807),
    PRIMARY KEY (`name`, `shard`),
    FOREIGN KEY (`name`) REFERENCES `diesel_sharded_counters` (`name`)
) WITHOUT ROWID;
CREATE TRIGGER `diesel_sharded_counter_shards_delete` AFTER DELETE ON `diesel_sharded_counters` BEGIN DELETE FROM `diesel_sharded_counter_shards` WHERE `name` = OLD.`name`; END;
CREATE TRIGGER `diesel_sharded_counter_shards_update` AFTER UPDATE OF `name` ON `diesel_sharded_counters` BEGIN DELETE FROM `diesel_sharded_counter_shards` WHERE `name` = NEW.`name` AND NOT (`name` = OLD.`name`); UPDATE `diesel_sharded_counter_shards` SET `name` = NEW.`name` WHERE `name` = OLD.`name`; END;
CREATE TRIGGER `diesel_sharded_counter_shards_insert` AFTER INSERT ON `diesel_sharded_counters` BEGIN DELETE FROM `diesel_sharded_counter_shards` WHERE `name` = NEW.`name`; END;

-- Numbers of shards that were changed while writers run: of a sharded field, or of a named counter.
CREATE TABLE `diesel_sharded_shard_numbers` (
    `shards_table` BLOB NOT NULL,
    `counter` BLOB NOT NULL,
    `shards` INTEGER NOT NULL,
    PRIMARY KEY (`shards_table`, `counter`)
) WITHOUT ROWID;

RELEASE diesel_sharded;
