//! Recounts, the totals beside them, and the amounts that bases lack.

use std::collections::{HashMap, HashSet};
use std::future::{Ready, ready};
use std::hash::Hash;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, Integrity, Quoted, ShardedBackend, each};
use crate::connection::{Blocking, Io, Link, LoadIo, Over};
use crate::engine::{KEYS_IN_A_STATEMENT, KeyedTable, ReadInto};
use crate::error::Error;
use crate::model::{Amount, ColumnType, ShardsColumn};
use crate::query_builder::{Names, SelectKeys, on, sql, statements, walk};
use crate::tables::shards_table::texts;

use super::builder::Drift;
use super::number::RecountQuery;

/// An [`Io`] that reads the result of an application's recount.
pub trait Recount<'q, Q, K>: Io {
    /// Reads the keys and their numbers.
    fn recount(conn: &mut Self::Conn, query: Q) -> Self::Future<'_, QueryResult<Recounted<K>>>;
}

/// Keys and their numbers.
type Recounted<K> = Vec<(K, Amount)>;

impl<'q, Conn, Q, K> Recount<'q, Q, K> for Over<Blocking, Conn>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    Q: RecountQuery<K> + LoadQuery<'q, Conn, <Q as RecountQuery<K>>::Row>,
    K: 'static,
{
    fn recount(conn: &mut Conn, query: Q) -> Ready<QueryResult<Recounted<K>>> {
        let rows = query.internal_load(conn);
        ready(rows.and_then(|rows| {
            rows.filter_map(|row| row.map(<Q as RecountQuery<K>>::amount).transpose())
                .collect()
        }))
    }
}

#[cfg(feature = "async")]
impl<Conn, Q, K> Recount<'static, Q, K> for Over<crate::connection::Async, Conn>
where
    Conn: diesel_async::AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    Q: RecountQuery<K, Row: Send>
        + diesel_async::methods::LoadQuery<'static, Conn, <Q as RecountQuery<K>>::Row>
        + 'static,
    K: Send + 'static,
{
    fn recount(
        conn: &mut Conn,
        query: Q,
    ) -> crate::connection::BoxFuture<'_, QueryResult<Recounted<K>>> {
        let loading = diesel_async::RunQueryDsl::load(query, conn);
        Box::pin(async move {
            let rows = loading.await?.into_iter();
            Ok(rows.filter_map(<Q as RecountQuery<K>>::amount).collect())
        })
    }
}

/// The recounted numbers as amounts of the field.
pub(super) fn by_key<K: Eq + Hash>(
    recounted: Recounted<K>,
    field: &ShardsColumn,
) -> QueryResult<HashMap<K, Amount>> {
    let mut by_key = HashMap::new();
    for (key, number) in recounted {
        let amount = number.of_type(field.column_type);
        let amount =
            amount.ok_or_else(|| misread(format!("`{}` is never {number}", field.name)))?;
        if by_key.insert(key, amount).is_some() {
            return Err(misread(
                "a recount gives one number for each key; this one gave two: group it by the key alone",
            ));
        }
    }
    Ok(by_key)
}

/// The amounts by the parents' own keys. Where keys are texts the database compares them, since its collation may ignore case, accents or
/// spaces at the end: the numbers of all keys that are the key of one parent are added up.
pub(super) async fn by_parent<T, W, M>(
    link: &mut Link<'_, M>,
    filter: &W,
    recounted: HashMap<T::Key, Amount>,
) -> QueryResult<HashMap<T::Key, Amount>>
where
    T: KeyedTable<M::Backend, Key: Eq + Hash>,
    W: QueryFragment<M::Backend> + QueryId,
    M: LoadIo,
{
    let mut types = T::KEY.iter().map(|column| column.column_type);
    // Equal values of an application's own type may differ as well.
    if !types.any(|column| matches!(column, ColumnType::Text | ColumnType::Other)) {
        return Ok(recounted);
    }
    let pick = SelectKeys::new(Names::of::<T>(), filter);
    let parents: HashSet<_> = T::KeySql::rows(link, pick).await?.into_iter().collect();
    let (mut by_parent, others): (HashMap<_, _>, HashMap<_, _>) = recounted
        .into_iter()
        .partition(|(key, _)| parents.contains(key));
    let others: Vec<_> = others.into_iter().collect();
    for others in others.chunks(KEYS_IN_A_STATEMENT) {
        let keys = others.iter().map(|(key, _)| T::key_is(key.clone()));
        let find = FindEach {
            names: Names::<M::Backend>::of::<T>(),
            keys: keys.collect(),
            row: PhantomData,
        };
        for (parent, _, number) in T::KeyAndNumberSql::rows(link, find).await? {
            let number = number.and_then(|number| number.parse().ok());
            let other = number.and_then(|number: usize| others.get(number));
            let Some((_, amount)) = other.filter(|_| parents.contains(&parent)) else {
                continue;
            };
            let sum = by_parent.entry(parent).and_modify(|sum| *sum += amount);
            sum.or_insert_with(|| amount.clone());
        }
    }
    Ok(by_parent)
}

fn misread(message: impl Into<String>) -> DieselError {
    let message: String = message.into();
    DieselError::DeserializationError(message.into())
}

/// The rows that `filter` matches, with totals and recounted numbers that differ.
pub(super) async fn compare<T, W, M>(
    link: &mut Link<'_, M>,
    field: &'static ShardsColumn,
    filter: &W,
    expected: &HashMap<T::Key, Amount>,
) -> QueryResult<Vec<Drift<T::Key, Amount>>>
where
    T: KeyedTable<M::Backend, Key: Eq + Hash>,
    W: QueryFragment<M::Backend> + QueryId,
    M: LoadIo,
{
    let read = ReadTotals {
        names: Names::<M::Backend>::of::<T>(),
        field,
        filter,
        row: PhantomData,
    };
    let totals = T::KeyAndNumberSql::rows(link, read).await?;
    let dialect = link.dialect();
    let mut differ = vec![];
    for (key, double, digits) in totals {
        let total = match double {
            Some(double) => Amount::Double(double).of_type(field.column_type),
            None => Amount::parse(&digits.unwrap_or_default(), field.column_type).ok(),
        };
        let total =
            total.ok_or_else(|| misread(format!("a total of `{}` is no number", field.name)))?;
        let expected = expected.get(&key).cloned();
        let expected = expected.unwrap_or_else(|| Amount::zero(field.column_type));
        if differs(dialect, field.column_type, &total, &expected) {
            differ.push(Drift {
                key,
                total,
                expected,
            });
        }
    }
    Ok(differ)
}

/// How far a total of doubles may be from a recount, as a part of the greater of the two: each adds up in an order of its own.
const TOLERANCE: f64 = 1e-9;

/// Whether a total of this type is not as a recount expects it; of doubles it may differ a little.
pub fn differs(dialect: Dialect, column: ColumnType, total: &Amount, expected: &Amount) -> bool {
    total != expected && !(dialect.rounds_sums(column) && total.is_close_to(expected, TOLERANCE))
}

/// The difference that has to be added to the total, if a statement can add it. Every database reads a literal of digits as the type of its
/// column, up to the greatest integer.
pub(super) fn lacks<K>(drift: &Drift<K, Amount>, column: ColumnType) -> QueryResult<Amount> {
    let fits = |amount: &Amount| match amount {
        Amount::Integer(n) => column == ColumnType::UnsignedBigInt || i64::try_from(*n).is_ok(),
        other => other.is_finite(),
    };
    let lacks = drift.expected.minus(&drift.total);
    let beyond = || Error::overflow("a drift beyond any integer").into();
    lacks.filter(fits).ok_or_else(beyond)
}

/// Refuses a table whose keys PostgreSQL pads with spaces when it returns them. A recount may return them with or without the
/// padding, and the two would be compared as different keys.
///
/// ```sql
/// SELECT '1' FROM "videos" WHERE pg_typeof("videos"."slug") = 'character'::regtype LIMIT 1
/// ```
pub(super) async fn refuse_padded_keys<T, M>(link: &mut Link<'_, M>) -> QueryResult<()>
where
    T: KeyedTable<M::Backend>,
    M: LoadIo,
{
    let is_text = |column: &ShardsColumn| column.column_type == ColumnType::Text;
    let backend = link.backend();
    if !backend.dialect().pads_text() || !T::KEY.iter().any(is_text) {
        return Ok(());
    }
    let table = Quoted::new(Names::of::<T>(), Integrity::default(), &backend)?;
    let parent = &table.parent;
    let texts_of_key = table.key.iter().filter(|column| is_text(column));
    let is_padded = each(texts_of_key, " OR ", |_, c| {
        format!("pg_typeof({parent}.{c}) = 'character'::regtype")
    });
    let sql = format!("SELECT '1' FROM {parent} WHERE {is_padded} LIMIT 1");
    match texts(link, sql).await?.is_empty() {
        true => Ok(()),
        false => Err(Error::PaddedKey {
            table: T::SHARDS_TABLE.to_string(),
        }
        .into()),
    }
}

/// Refuses a session whose `sql_select_limit` may cut the recount, which is the application's own query: rows that are cut off
/// would be taken for 0.
pub(super) async fn refuse_cut_recounts<M: LoadIo>(link: &mut Link<'_, M>) -> QueryResult<()> {
    let all_rows = link.dialect().all_rows();
    if all_rows.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT '1' FROM (SELECT 1) AS one WHERE @@sql_select_limit < 18446744073709551615{all_rows}"
    );
    match texts(link, sql).await?.is_empty() {
        true => Ok(()),
        false => Err(Error::RefusedBySetting {
            setting: "sql_select_limit",
            remedy: "it would cut the recount: `SET SESSION sql_select_limit = DEFAULT` before",
            source: DieselError::QueryBuilderError("a recount has to give all of its rows".into()),
        }
        .into()),
    }
}

statements! {
    /// Reads keys and totals, in the order of the keys, in which parents are locked.
    ///
    /// ```sql
    /// SELECT "videos"."id", NULL, CAST(total AS TEXT) FROM "videos" WHERE … ORDER BY "videos"."id"
    /// SELECT "videos"."id", total, NULL FROM "videos" WHERE … ORDER BY "videos"."id"             -- of doubles
    /// -- MySQL, MariaDB: CAST(total AS CHAR), and LIMIT 18446744073709551615
    /// ```
    struct ReadTotals<'a, ST> {
        names: Names<'a, DB>,
        field: &'static ShardsColumn,
        filter: &'a dyn QueryFragment<DB>,
        row: PhantomData<ST>,
    }: Query<ST>;
    |self, out| {
        let table = self.names;
        let is_double = out.backend().dialect().reads_doubles(self.field.column_type);
        let total = self.field.value(table.total(self.field, None));
        sql!(out;
            "SELECT ", table.key(), ", ", if !is_double { "NULL, " }, total, if is_double { ", NULL" },
            " FROM ", walk(table.parent), walk(self.filter), " ORDER BY ", table.key(), on(Dialect::all_rows))
    }

    /// Reads the parents' own keys for these, each with the number of the key that found it.
    ///
    /// ```sql
    /// SELECT "tags"."name", NULL, '0' FROM "tags" WHERE ("tags"."name" = $1) UNION ALL SELECT "tags"."name", NULL, '1' FROM "tags" WHERE …
    /// ```
    struct FindEach<'a, K: QueryFragment<DB>, ST> {
        names: Names<'a, DB>,
        keys: Vec<K>,
        row: PhantomData<ST>,
    }: Query<ST>;
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // one text for each number of keys
        let table = self.names;
        sql!(out; for (number, key_is) in (self.keys.iter().enumerate(), " UNION ALL ") {
            "SELECT ", table.key(), ", NULL, '", &*number.to_string(), "' FROM ", walk(table.parent), " WHERE ", walk(key_is)
        })
    }
}

#[cfg(test)]
mod drift_tests {
    use super::*;

    #[test]
    fn only_sums_that_round_may_differ_a_little() {
        let differs = |column, total: f64, expected: f64| {
            let [total, expected] = [total, expected].map(Amount::Double);
            differs(Dialect::Postgres, column, &total, &expected)
        };
        assert!(!differs(ColumnType::Double, 1e9, 1e9 + 0.5));
        assert!(differs(ColumnType::Double, 1e9, 1e9 + 1.5));
        assert!(differs(ColumnType::Numeric, 1e9, 1e9 + 0.5));
    }

    #[test]
    fn a_difference_that_no_statement_adds_is_an_overflow() {
        let lacks = |total, expected, column| {
            let key = 7;
            let drift = Drift {
                key,
                total,
                expected,
            };
            lacks(&drift, column).ok()
        };
        let [three, most] = [3, i128::MAX].map(Amount::Integer);
        let zero = Amount::Integer(0);
        let some = Some(Amount::Integer(-3));
        assert_eq!(lacks(three, zero.clone(), ColumnType::BigInt), some);
        assert_eq!(lacks(zero, most, ColumnType::BigInt), None);
        let [zero, nan] = [0.0, f64::NAN].map(Amount::Double);
        assert_eq!(lacks(zero, nan, ColumnType::Double), None);
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::model::ShardedTable;
    use crate::query_builder::KeyIs;
    use crate::test_schema::{assert_sql, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn a_total_is_read_as_a_text() {
        let [_, field] = videos::table::FIELDS else {
            unreachable!("views and likes");
        };
        let filter = KeyIs(videos::id.eq(7));
        macro_rules! read {
            () => {
                ReadTotals::<(), _> {
                    names: Names::of::<videos::table>(),
                    field,
                    filter: &filter,
                    row: PhantomData,
                }
            };
        }
        let likes = r#"("videos"."likes" + (SELECT COALESCE(SUM("videos_shards"."likes"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"))"#;
        assert_eq!(
            sql!(Pg, read!()),
            format!(
                r#"SELECT "videos"."id", NULL, CAST(CAST({likes} AS integer) AS TEXT) FROM "videos" WHERE ("videos"."id" = $1) ORDER BY "videos"."id""#
            ),
        );
        let likes = likes.replace('"', "`");
        assert_eq!(
            sql!(Mysql, read!()),
            format!(
                "SELECT `videos`.`id`, NULL, CAST({likes} AS CHAR) FROM `videos` WHERE (`videos`.`id` = ?) ORDER BY `videos`.`id` LIMIT 18446744073709551615"
            ),
        );
        let sqlite = sql!(Sqlite, read!());
        assert!(
            sqlite.starts_with("SELECT `videos`.`id`, NULL, CAST((SELECT CASE WHEN total"),
            "{sqlite}"
        );
        assert!(
            sqlite.ends_with(
                ")) AS TEXT) FROM `videos` WHERE (`videos`.`id` = ?) ORDER BY `videos`.`id`"
            ),
            "{sqlite}"
        );
    }

    #[test]
    fn the_parents_own_keys_are_found() {
        let find = FindEach::<_, (), Pg> {
            names: Names::of::<videos::table>(),
            keys: vec![videos::id.eq(7), videos::id.eq(8)],
            row: PhantomData,
        };
        assert_sql!(find;
            Pg => r#"SELECT "videos"."id", NULL, '0' FROM "videos" WHERE ("videos"."id" = $1) UNION ALL SELECT "videos"."id", NULL, '1' FROM "videos" WHERE ("videos"."id" = $2)"#,
        );
    }
}
