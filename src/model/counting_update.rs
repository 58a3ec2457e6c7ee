//! The one change that shards take: `column.eq(column + n)`.

use diesel::query_builder::{AsChangeset, QueryId};

use super::column::are_equal;

/// A counting update: `column.eq(column + n)` or `column.eq(column - n)` on a sharded field, a tuple of up to 8 such, an `Option` of one
/// (`None` counts nothing), or a reference to one.
///
/// `n` is a value or a reference; up to three may be chained (`views + 1 + bonus`). `Columns` and `Operations` are those of each [`Change`],
/// `Kind` keeps the impls apart. All are inferred.
#[diagnostic::on_unimplemented(
    message = "this is not a counting update of a sharded field: `{Self}`",
    label = "expected `column.eq(column + n)` or `column.eq(column - n)`",
    note = "a value that was read before loses the counts that came in since: write `clicks.eq(clicks + 1)`, with the column on \
            both sides, instead of `clicks.eq(self.clicks + 1)`",
    note = "shards can only be added to: to set a total, use `diesel_sharded::set_total`; to change a column without \
            `#[sharded]`, use `diesel::update`",
    note = "a tuple that also sets a plain column locks the parent's row anyway, so that shards would gain nothing: give \
            the whole tuple to `diesel::update`, or make two updates of it"
)]
pub trait CountingUpdate<Columns, Operations, Kind> {
    /// The columns' names, by which a column counted twice in one update is found.
    const COLUMNS: &'static [&'static str];

    /// The changes by value.
    type Changes: AsChangeset;

    /// Whether nothing is counted, since all is `None`.
    fn is_nothing(&self) -> bool;

    /// The changes by value.
    fn into_changes(self) -> Self::Changes;
}

/// `column.eq(column + n)` or `column.eq(column - n)`. The derive implements it for the types that Diesel gives these expressions. `Column`
/// is the application's own type: it is what lets the application's crate write the impl. `Operations` keeps two impls apart.
pub trait Change<Column, Operations>: AsChangeset {
    /// The column's name.
    const COLUMN: &'static str;
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
}

/// No kind. The compiler settles on an impl that stands alone, even if its bounds fail, and then reports its associated type as a second error.
/// Beside another one it looks at the bounds first.
#[derive(Debug)]
pub struct Never;

/// No type is.
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
}

/// Changes that may be missing. Their SQL depends on the value, so that no query id stands for it.
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

/// `+ n`, after the operations in `Before`.
#[derive(Debug)]
pub struct Plus<Before>(Before);
/// `- n`, after the operations in `Before`.
#[derive(Debug)]
pub struct Minus<Before>(Before);
/// `+ &n`, after the operations in `Before`.
#[derive(Debug)]
pub struct PlusRef<Before>(Before);
/// `- &n`, after the operations in `Before`.
#[derive(Debug)]
pub struct MinusRef<Before>(Before);

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

/// The one name of a change inside a tuple, which may not be a tuple itself.
const fn only(names: &[&'static str]) -> &'static str {
    assert!(
        names.len() == 1,
        "a tuple of counting updates holds no other tuple"
    );
    names[0]
}

/// Whether no name occurs twice: databases disagree on what `SET a = a + 1, a = a + 2` adds.
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

/// Implements [`Change`] for the one to three operations that may follow a column, with values of a type; the
/// derive calls it.
#[doc(hidden)]
#[macro_export]
macro_rules! __counting_updates {
    ($column:ty, $value:ty) => {
        $crate::__counting_updates!(@operand $column, $value; $column; (); []; 'a 'b 'c);
    };
    (@operand $column:ty, $value:ty; $sum:ty; $before:ty; [$($used:lifetime)*]; $new:lifetime $($rest:lifetime)*) => {
        $crate::__counting_updates!(@sum $column, $value; <$sum as ::std::ops::Add<$value>>::Output;
            $crate::model::counting_update::Plus<$before>; [$($used)*]; $($rest)*);
        $crate::__counting_updates!(@sum $column, $value; <$sum as ::std::ops::Sub<$value>>::Output;
            $crate::model::counting_update::Minus<$before>; [$($used)*]; $($rest)*);
        $crate::__counting_updates!(@sum $column, $value; <$sum as ::std::ops::Add<&$new $value>>::Output;
            $crate::model::counting_update::PlusRef<$before>; [$($used)* $new]; $($rest)*);
        $crate::__counting_updates!(@sum $column, $value; <$sum as ::std::ops::Sub<&$new $value>>::Output;
            $crate::model::counting_update::MinusRef<$before>; [$($used)* $new]; $($rest)*);
    };
    (@operand $column:ty, $value:ty; $sum:ty; $before:ty; [$($used:lifetime)*]; ) => {};
    (@sum $column:ty, $value:ty; $sum:ty; $operations:ty; [$($used:lifetime)*]; $($rest:lifetime)*) => {
        #[diagnostic::do_not_recommend] // there are dozens
        impl<$($used),*> $crate::model::counting_update::Change<$column, $operations> for $crate::__diesel::dsl::Eq<$column, $sum> {
            const COLUMN: &'static str = <$column as $crate::__diesel::Column>::NAME;
        }
        $crate::__counting_updates!(@operand $column, $value; $sum; $operations; [$($used)*]; $($rest)*);
    };
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
