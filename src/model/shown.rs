//! Types whose `Debug` is the value that the database gets.
//!
//! Diesel shows the values of a statement by their `Debug` alone. An application's own type may print anything: a redacted key prints the
//! same for all rows. Two of these types print alike only if they are the same value.

use std::any::TypeId;

/// The type, whatever its lifetimes.
pub fn type_id<T: ?Sized>() -> TypeId {
    typeid::of::<T>()
}

macro_rules! is_one_of {
    ($type:ty; $($one:ty),+) => {{
        let id = type_id::<$type>();
        false $(|| id == type_id::<$one>() || id == type_id::<&$one>())+
    }};
}

/// Whether `T` is an integer that fits into an `i64`, or a reference to one.
pub(crate) fn shows_integer<T: ?Sized>() -> bool {
    is_one_of!(T; i64, i32, i16, i8, u32, u16, u8)
}

/// Whether `T` is a type of keys that prints no two values alike, or a reference to one.
pub fn shows_key<T: ?Sized>() -> bool {
    #[cfg(feature = "uuid")]
    if is_one_of!(T; uuid::Uuid) {
        return true;
    }
    shows_integer::<T>() || is_one_of!(T; u64, bool, String, str, Vec<u8>, [u8], &str, &[u8])
}

/// Shows some fields of a type. Generics stand in brackets before the type; `finish` or `finish_non_exhaustive` behind the fields.
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
        assert!(shows_integer::<&i32>() && !shows_integer::<u64>() && !shows_integer::<f32>());
    }
}
