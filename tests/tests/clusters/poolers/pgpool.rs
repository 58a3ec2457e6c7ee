//! Pgpool-II in front of a primary and a standby that lags: what an operation answers does not depend on the standby.

#[path = "pgpool"]
mod blocking {
    use diesel_sharded as api;

    type Conn = diesel::PgConnection;

    mod cases;
    #[path = "../../../operations/mod.rs"]
    #[expect(dead_code, reason = "what other programs use")]
    mod operations;
}

#[path = "pgpool"]
mod awaited {
    use diesel_sharded_tests::awaited as api;

    type Conn = api::Awaited<diesel_async::AsyncPgConnection>;

    mod cases;
    #[path = "../../../operations/mod.rs"]
    #[expect(dead_code, reason = "what other programs use")]
    mod operations;
}
