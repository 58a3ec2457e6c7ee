//! Types whose `Debug` shows the value that the database gets.
//!
//! Diesel shows a statement's values only by their `Debug`. An application's own type may print anything: a redacted key prints the same
//! for all rows. Values of the types below print the same only if they are equal.

use std::any::TypeId;

/// The id of a type, without its lifetimes.
pub fn type_id<T: ?Sized>() -> TypeId {
    typeid::of::<T>()
}

macro_rules! is_one_of {
    ($type:ty; $($one:ty),+) => {{
        let id = type_id::<$type>();
        false $(|| id == type_id::<$one>() || id == type_id::<&$one>())+
    }};
}

/// Whether `T` is an integer, or a reference to one.
fn shows_integer<T: ?Sized>() -> bool {
    is_one_of!(T; i64, i32, i16, i8, u64, u32, u16, u8)
}

/// Whether `T` is a number that is read from its `Debug` as it is, or a reference to one. An `f32` shows itself as another `f64`.
pub(crate) fn shows_number<T: ?Sized>() -> bool {
    #[cfg(feature = "numeric")]
    if is_one_of!(T; bigdecimal::BigDecimal) {
        return true;
    }
    shows_integer::<T>() || is_one_of!(T; f64)
}

/// Whether `T` is a key type of which no two values print the same, or a reference to one.
pub fn shows_key<T: ?Sized>() -> bool {
    #[cfg(feature = "uuid")]
    if is_one_of!(T; uuid::Uuid) {
        return true;
    }
    shows_integer::<T>() || is_one_of!(T; bool, String, str, Vec<u8>, [u8], &str, &[u8])
}

/// Implements `Debug` for a type with some of its fields. Generics come first, in brackets; `finish` or `finish_non_exhaustive` comes last.
macro_rules! shows {
    ([$($generics:tt)*] $type:ty: |$self:ident| $name:ident { $($field:ident: $value:expr),* } $finish:ident) => {
        impl<$($generics)*> ::std::fmt::Debug for $type {
            fn fmt(&$self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.$finish()
            }
        }
    };
}
pub(crate) use shows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_print_as_they_are_count() {
        struct Redacted;
        assert!(shows_key::<i64>() && shows_key::<&String>() && shows_key::<&str>());
        assert!(shows_key::<&&str>() && shows_key::<&[u8]>() && shows_key::<Vec<u8>>());
        assert!(!shows_key::<Redacted>() && !shows_key::<&Redacted>());
        assert!(!shows_key::<f64>() && !shows_key::<Option<i64>>());
        assert!(shows_number::<&i32>() && shows_number::<u64>() && shows_number::<&f64>());
        assert!(!shows_number::<f32>() && !shows_number::<Option<i64>>());
    }
}
