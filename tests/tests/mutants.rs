//! The cases of folds, of the coalescer and of idempotency keys, and on PostgreSQL its conflicts: they test mutants, since they are built
//! and run quickly. See `.cargo/mutants.toml`.

#![expect(
    clippy::duplicate_mod,
    reason = "the same cases, once for each database"
)]

macro_rules! on {
    ($name:ident, $conn:ty) => {
        #[path = "databases"]
        mod $name {
            #[path = "blocking/coalescer.rs"]
            mod coalescer;
            #[path = "cases/fold.rs"]
            mod fold;
            #[path = "cases/idempotency.rs"]
            mod idempotency;

            #[expect(dead_code, unused_imports, reason = "what the other cases use")]
            mod support;

            use self::support::*;

            /// The crate that the cases test.
            use diesel_sharded as api;

            type Conn = $conn;
        }
    };
}

on!(sqlite, diesel::SqliteConnection);
on!(postgres, diesel::PgConnection);

#[path = "databases"]
mod conflicts {
    mod servers;

    use diesel_sharded as api;

    type Conn = diesel::PgConnection;
}
