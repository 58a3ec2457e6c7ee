//! The only change that shards accept: `column.eq(column + n)`.

use std::marker::PhantomData;

use diesel::dsl::Eq;
use diesel::expression::AsExpression;
use diesel::internal::derives::as_expression::Bound;
use diesel::internal::derives::numeric_ops::{Add, Sub};
use diesel::query_builder::{AsChangeset, QueryId};

use super::column::are_equal;
use super::field::ShardedColumn;
use super::shown::shows_number;

/// A counting update: `column.eq(column + n)` or `column.eq(column - n)` on a sharded field, a tuple of up to 8 such updates, an `Option`
/// of one (`None` counts nothing), or a reference to one.
///
/// `n` is a value or a reference; several may be chained (`views + 1 + bonus`). `Columns` and `Operations` are those of each [`Change`];
/// `Kind` keeps the impls apart. The compiler infers all three.
#[diagnostic::on_unimplemented(
    message = "this is not a counting update of a sharded field: `{Self}`",
    label = "expected `column.eq(column + n)` or `column.eq(column - n)`",
    note = "a field is sharded if the model of its table derives `diesel_sharded::ShardedField` and has `#[sharded]` on it; one with \
            `#[sharded(max)]` or `#[sharded(min)]` is changed by `column.raise_to(value)` or `column.lower_to(value)`",
    note = "a value that was read before loses the counts that came in since: write `clicks.eq(clicks + 1)`, with the column on \
            both sides, instead of `clicks.eq(self.clicks + 1)`",
    note = "shards can only be added to: to set a total, use `diesel_sharded::set_total`; to change a column without \
            `#[sharded]`, use `diesel::update`",
    note = "a tuple that also sets a plain column locks the parent's row anyway, so that shards would gain nothing: give \
            the whole tuple to `diesel::update`, or make two updates of it"
)]
pub trait CountingUpdate<Columns, Operations, Kind> {
    /// The columns' names. A name that occurs twice is an error.
    const COLUMNS: &'static [&'static str];

    /// The changes by value.
    type Changes: AsChangeset;

    /// Whether every change is `None`, so that nothing is counted.
    fn is_nothing(&self) -> bool;

    /// The changes by value.
    fn into_changes(self) -> Self::Changes;

    /// Appends the [`Term`]s of the changes in the order of their binds. `field` is the number of the first field. Returns false if the
    /// `Debug` of a value may show another number than the database gets.
    fn terms(_field: usize, _terms: &mut Vec<Term>) -> bool {
        false
    }
}

/// A value that is added to a field, or subtracted. `field` is the field's index in [`CountingUpdate::COLUMNS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub(crate) field: usize,
    pub(crate) is_subtracted: bool,
}

impl Term {
    pub(crate) fn added_to(field: usize) -> Self {
        Term {
            field,
            is_subtracted: false,
        }
    }
}

/// See [`CountingUpdate::terms`].
pub(crate) type Terms = fn(&mut Vec<Term>) -> bool;

/// `column.eq(column + n)` or `column.eq(column - n)`. `Operations` keeps the impls apart.
pub trait Change<Column, Operations>: AsChangeset {
    /// The column's name.
    const COLUMN: &'static str;

    /// See [`CountingUpdate::terms`].
    fn terms(_field: usize, _terms: &mut Vec<Term>) -> bool {
        false
    }
}

/// A column plus or minus values.
pub trait Sum<Column, Operations> {
    /// See [`CountingUpdate::terms`].
    fn terms(field: usize, terms: &mut Vec<Term>) -> bool;
}

/// A value that the application knows, not an expression that the database computes.
pub trait Operand {
    /// Whether its `Debug` shows the number that the database gets.
    fn shows_number() -> bool;
}

impl<ST, T> Operand for Bound<ST, T> {
    fn shows_number() -> bool {
        shows_number::<T>()
    }
}

impl<C: ShardedColumn> Sum<C, Itself> for C {
    fn terms(_: usize, _: &mut Vec<Term>) -> bool {
        true
    }
}

/// The column itself.
#[derive(Debug)]
pub struct Itself;

macro_rules! operations {
    ($($operation:ident, $expression:ident, $is_subtracted:literal;)+) => {$(
        #[doc = concat!("[`", stringify!($expression), "`] of `Value` after what `Before` is, by the operations in it.")]
        #[derive(Debug)]
        pub struct $operation<Before, Operations, Value>(PhantomData<(Before, Operations, Value)>);

        impl<C, Before, Operations, Value> Sum<C, $operation<Before, Operations, Value>> for $expression<Before, Value>
        where
            Before: Sum<C, Operations>,
            Value: Operand,
        {
            fn terms(field: usize, terms: &mut Vec<Term>) -> bool {
                let is_plain = Before::terms(field, terms) && Value::shows_number();
                terms.push(Term { field, is_subtracted: $is_subtracted });
                is_plain
            }
        }

        #[diagnostic::do_not_recommend]
        impl<C, Before, Operations, Value> Change<C, $operation<Before, Operations, Value>> for Eq<C, $expression<Before, Value>>
        where
            C: ShardedColumn,
            Before: Sum<C, Operations>,
            Value: Operand,
            $expression<Before, Value>: AsExpression<C::SqlType>,
            Self: AsChangeset,
        {
            const COLUMN: &'static str = C::NAME;

            fn terms(field: usize, terms: &mut Vec<Term>) -> bool {
                <$expression<Before, Value> as Sum<C, $operation<Before, Operations, Value>>>::terms(field, terms)
            }
        }
    )+};
}

operations! {
    Plus, Add, false;
    Minus, Sub, true;
}

/// The kind of a [`Change`].
#[derive(Debug)]
pub struct One;
/// The kind of an `Option`.
#[derive(Debug)]
pub struct Optional<Kind>(Kind);
/// The kind of a reference.
#[derive(Debug)]
pub struct Borrowed<Kind>(Kind);

#[diagnostic::do_not_recommend]
impl<V, Column, Operations> CountingUpdate<Column, Operations, One> for V
where
    V: Change<Column, Operations>,
{
    const COLUMNS: &'static [&'static str] = &[V::COLUMN];

    type Changes = V;

    fn is_nothing(&self) -> bool {
        false
    }

    fn into_changes(self) -> V {
        self
    }

    fn terms(field: usize, terms: &mut Vec<Term>) -> bool {
        V::terms(field, terms)
    }
}

/// The kind of a second impl, which never matches. With only one candidate impl, rustc selects it even if its bounds fail, and then reports
/// a second error about its associated type. With two candidates it checks the bounds first.
#[derive(Debug)]
pub struct Never;

/// No type implements this.
pub trait Impossible {}

#[diagnostic::do_not_recommend]
impl<V, Columns, Operations> CountingUpdate<Columns, Operations, Never> for V
where
    V: Impossible + AsChangeset,
{
    const COLUMNS: &'static [&'static str] = &[];

    type Changes = V;

    fn is_nothing(&self) -> bool {
        true
    }

    fn into_changes(self) -> V {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<V, Columns, Operations, Kind> CountingUpdate<Columns, Operations, Optional<Kind>> for Option<V>
where
    V: CountingUpdate<Columns, Operations, Kind>,
{
    const COLUMNS: &'static [&'static str] = V::COLUMNS;

    type Changes = Perhaps<V::Changes>;

    fn is_nothing(&self) -> bool {
        self.as_ref().is_none_or(V::is_nothing)
    }

    fn into_changes(self) -> Perhaps<V::Changes> {
        Perhaps(self.map(V::into_changes))
    }
}

#[diagnostic::do_not_recommend]
impl<V, Columns, Operations, Kind> CountingUpdate<Columns, Operations, Borrowed<Kind>> for &V
where
    V: CountingUpdate<Columns, Operations, Kind> + Clone,
{
    const COLUMNS: &'static [&'static str] = V::COLUMNS;

    type Changes = V::Changes;

    fn is_nothing(&self) -> bool {
        V::is_nothing(self)
    }

    fn into_changes(self) -> V::Changes {
        self.clone().into_changes()
    }

    fn terms(field: usize, terms: &mut Vec<Term>) -> bool {
        V::terms(field, terms)
    }
}

/// Changes that may be missing. Their SQL depends on the value, so they have no query id.
#[derive(Debug, Clone, Copy)]
pub struct Perhaps<V>(Option<V>);

impl<V: AsChangeset> AsChangeset for Perhaps<V> {
    type Target = V::Target;
    type Changeset = Option<V::Changeset>;

    fn as_changeset(self) -> Self::Changeset {
        self.0.as_changeset()
    }
}

impl<V> QueryId for Perhaps<V> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

macro_rules! tuples {
    ($($(($change:ident, $columns:ident, $operations:ident, $kind:ident))+;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($change, $columns, $operations, $kind),+> CountingUpdate<($($columns,)+), ($($operations,)+), ($($kind,)+)> for ($($change,)+)
        where
            $($change: CountingUpdate<$columns, $operations, $kind>,)+
            ($($change::Changes,)+): AsChangeset,
        {
            const COLUMNS: &'static [&'static str] = &[$(only($change::COLUMNS)),+];

            type Changes = ($($change::Changes,)+);

            #[allow(non_snake_case)]
            fn is_nothing(&self) -> bool {
                let ($($change,)+) = self;
                $($change.is_nothing())&&+
            }

            #[allow(non_snake_case)]
            fn into_changes(self) -> Self::Changes {
                let ($($change,)+) = self;
                ($($change.into_changes(),)+)
            }

            fn terms(field: usize, terms: &mut Vec<Term>) -> bool {
                let mut fields = field..;
                $(fields.next().is_some_and(|field| $change::terms(field, terms)))&&+
            }
        }
    )+};
}

tuples! {
    (A, CA, OA, KA);
    (A, CA, OA, KA) (B, CB, OB, KB);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC) (D, CD, OD, KD);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC) (D, CD, OD, KD) (E, CE, OE, KE);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC) (D, CD, OD, KD) (E, CE, OE, KE) (F, CF, OF, KF);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC) (D, CD, OD, KD) (E, CE, OE, KE) (F, CF, OF, KF) (G, CG, OG, KG);
    (A, CA, OA, KA) (B, CB, OB, KB) (C, CC, OC, KC) (D, CD, OD, KD) (E, CE, OE, KE) (F, CF, OF, KF) (G, CG, OG, KG) (H, CH, OH, KH);
}

/// The name of a change inside a tuple. Such a change cannot be a tuple itself.
const fn only(names: &[&'static str]) -> &'static str {
    assert!(
        names.len() == 1,
        "a tuple of counting updates holds no other tuple"
    );
    names[0]
}

/// Whether no name occurs twice. Databases disagree on what `SET a = a + 1, a = a + 2` adds.
pub(crate) const fn are_distinct(names: &[&str]) -> bool {
    let mut i = 0;
    while i < names.len() {
        let mut j = i + 1;
        while j < names.len() {
            if are_equal(names[i].as_bytes(), names[j].as_bytes()) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::are_distinct;

    #[test]
    fn a_column_counted_twice_is_found() {
        assert!(are_distinct(&[]));
        assert!(are_distinct(&["views", "likes", "view"]));
        assert!(!are_distinct(&["views", "likes", "views"]));
    }
}
