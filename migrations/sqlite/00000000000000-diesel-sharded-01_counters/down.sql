SAVEPOINT diesel_sharded;
DROP TABLE `diesel_sharded_shard_numbers`;
DROP TABLE `diesel_sharded_counter_shards`;
DROP TABLE `diesel_sharded_counters`;
RELEASE diesel_sharded;
