-- Each is dropped by itself. What an earlier run has left is dropped by the next.
DROP TABLE IF EXISTS `diesel_sharded_shard_numbers`, `diesel_sharded_counter_shards`, `diesel_sharded_counters`;
