DROP TABLE `diesel_sharded_batches`;
