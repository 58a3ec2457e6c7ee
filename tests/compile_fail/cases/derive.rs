//! What the derive itself refuses.

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        rating -> Nullable<BigInt>,
    }
}

diesel::table! {
    pages (id) {
        id -> BigInt,
        shard -> BigInt,
    }
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(shards = 4, shards = 8)]
struct AttributeTwice {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded]
struct BareAttributeOnStruct {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[diesel(primary_key(title))]
struct BorrowedKey<'a> {
    title: &'a str,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[diesel(primary_key(title))]
struct EnumOfMysql {
    #[sharded(sql_type = "ENUM('a', 'b')")]
    title: String,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedSelectable)]
#[diesel(table_name = videos)]
struct EmbedsTotals {
    title: String,
    #[diesel(embed)]
    page: Page,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(schema = analytics)]
struct InSchemaWithoutShardsTable {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
struct Page {
    id: i64,
    #[sharded]
    shard: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
enum Enum {
    Short,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct MaxAndMin {
    id: i64,
    #[sharded(max, min)]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct MaxBesideACount {
    id: i64,
    #[sharded]
    #[sharded(max)]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct MaxOfAText {
    id: i64,
    #[sharded(max)]
    title: String,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct NoKeyField {
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct NoShardedField {
    id: i64,
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct NullableField {
    id: i64,
    #[sharded]
    rating: Option<i64>,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct ShardedKey {
    #[sharded]
    id: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(shards = -1)]
struct ShardsNegative {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(shards = 4097)]
struct ShardsTooMany {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(shards = 0)]
struct ShardsZero {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct SqlTypeOfAText {
    id: i64,
    #[sharded(sql_type = "TEXT")]
    title: String,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct TextField {
    id: i64,
    #[sharded]
    title: String,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(shard = 16)]
struct UnknownAttribute {
    id: i64,
    #[sharded]
    views: i64,
}

#[derive(diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
struct UnknownFieldAttribute {
    id: i64,
    #[sharded(shards = 4)]
    views: i64,
}

#[derive(diesel_sharded::ShardedSelectable, diesel_sharded::ShardedField)]
#[diesel(table_name = videos)]
#[sharded(no_totals)]
struct ReadsTotalsAndNone {
    id: i64,
    #[sharded]
    views: i64,
}

fn main() {}
