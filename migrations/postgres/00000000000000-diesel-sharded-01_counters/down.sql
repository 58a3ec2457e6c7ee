DROP TABLE "diesel_sharded_shard_numbers", "diesel_sharded_counter_shards", "diesel_sharded_counters";
