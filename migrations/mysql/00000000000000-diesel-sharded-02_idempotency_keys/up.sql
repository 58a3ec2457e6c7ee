-- The idempotency keys of counting updates, each committed together with what it counted.
CREATE TABLE `diesel_sharded_idempotency_keys` (
    `key` VARBINARY(255) NOT NULL PRIMARY KEY,
    `fingerprint` BIGINT NOT NULL, -- of the update that the key came with
    `claim` BIGINT NOT NULL, -- drawn by the transaction that made the row
    `counted` BIGINT NOT NULL, -- rows
    `created` BIGINT NOT NULL, -- seconds since 1970, by the database's clock
    `expires` BIGINT NOT NULL DEFAULT 9223372036854775807, -- in the same seconds; the greatest number: never
    KEY `diesel_sharded_idempotency_keys_expires` (`expires`, `created`)
) ENGINE = InnoDB;
