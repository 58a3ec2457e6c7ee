//! The one change that shards take: `column.eq(column + n)`.

use diesel::query_builder::AsChangeset;

use super::column::are_equal;

/// A counting update: `column.eq(column + n)` or `column.eq(column - n)` on a sharded field, or a tuple of up to 8 such.
///
/// `n` is a value or a reference; up to three may be chained (`views + 1 + bonus`). The derive implements this for the
/// types that Diesel gives these expressions. `Columns` is the column, which is the application's own type: it is what
/// lets the application's crate write the impl. `Operations` keeps two impls apart. Both are inferred.
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
pub trait CountingUpdate<Columns, Operations>: AsChangeset {
    /// The columns' names, by which a column counted twice in one update is found.
    const COLUMNS: &'static [&'static str];
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
    ($($(($change:ident, $columns:ident, $operations:ident))+;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<Target, $($change, $columns, $operations),+> CountingUpdate<($($columns,)+), ($($operations,)+)> for ($($change,)+)
        where
            $($change: CountingUpdate<$columns, $operations, Target = Target>,)+
            ($($change,)+): AsChangeset,
        {
            const COLUMNS: &'static [&'static str] = &[$(only($change::COLUMNS)),+];
        }
    )+};
}

tuples! {
    (A, CA, OA);
    (A, CA, OA) (B, CB, OB);
    (A, CA, OA) (B, CB, OB) (C, CC, OC);
    (A, CA, OA) (B, CB, OB) (C, CC, OC) (D, CD, OD);
    (A, CA, OA) (B, CB, OB) (C, CC, OC) (D, CD, OD) (E, CE, OE);
    (A, CA, OA) (B, CB, OB) (C, CC, OC) (D, CD, OD) (E, CE, OE) (F, CF, OF);
    (A, CA, OA) (B, CB, OB) (C, CC, OC) (D, CD, OD) (E, CE, OE) (F, CF, OF) (G, CG, OG);
    (A, CA, OA) (B, CB, OB) (C, CC, OC) (D, CD, OD) (E, CE, OE) (F, CF, OF) (G, CG, OG) (H, CH, OH);
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

/// Implements [`CountingUpdate`] for the one to three operations that may follow a column, with values of a type; the
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
        impl<$($used),*> $crate::model::CountingUpdate<$column, $operations> for $crate::__diesel::dsl::Eq<$column, $sum> {
            const COLUMNS: &'static [&'static str] = &[<$column as $crate::__diesel::Column>::NAME];
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
