DROP TABLE "diesel_sharded_idempotency_keys";
