//! Blocking and asynchronous methods, written once.

/// Implements methods twice: for handles whose `Run` is [`Blocking`](super::Blocking), and for those whose `Run` is `Async`.
///
/// A body is async code over its second parameter, a [`Link`](super::Link) to the caller's connection. The caller passes the connection
/// last. One generic method could not serve both: the compiler knows that a future is `Send` only for a concrete `Run`.
///
/// The docs go to the blocking method. Two kinds of handles, with `;` in between, may share their methods. A file can hold only one
/// `paired!`, because the macro declares modules.
macro_rules! paired {
    ($(
        $(
            impl<$($param:ident $(: $param_bound:path)?),*> $handle:ty
            where $($bounded:ty: $bound:path),+ $(,)?
        );+
        { $($methods:tt)+ }
    )+) => {
        mod blocking {
            use super::*;
            use crate::connection::Blocking as Run;

            $(crate::connection::paired! {
                @blocking { $($methods)+ }
                $(impl<$($param $(: $param_bound)?),*> $handle [$($bounded: $bound,)+])+
            })+
        }

        #[cfg(feature = "async")]
        mod awaited {
            use super::*;
            use crate::connection::Async as Run;

            $(crate::connection::paired! {
                @awaited { $($methods)+ }
                $(impl<$($param $(: $param_bound)?),*> $handle [$($bounded: $bound,)+])+
            })+
        }
    };
    (
        @$run:ident $methods:tt
        $(impl<$($param:ident $(: $param_bound:path)?),*> $handle:ty [$($bounds:tt)+])+
    ) => {
        $(impl<$($param $(: $param_bound)?),*> $handle {
            crate::connection::paired! { @$run [$($bounds)+] $methods }
        })+
    };
    (@$run:ident $bounds:tt {
        $(
            $(#[$attribute:meta])*
            pub fn $name:ident(&$self:ident, $link:ident: Link $(, $n:ident: $n_type:ty)*) -> QueryResult<$answer:ty>
            $body:block
        )+
    }) => {
        $(crate::connection::paired! {
            @$run $bounds [$($attribute,)*] $name ($self, $link $(, $n: $n_type)*) $answer, $body
        })+
    };
    (
        @blocking [$($bounds:tt)*] [$($attribute:meta,)*]
        $name:ident ($self:ident, $link:ident $(, $n:ident: $n_type:ty)*) $answer:ty, $body:block
    ) => {
        $(#[$attribute])*
        pub fn $name<Conn, DB>(&$self, $($n: $n_type,)* conn: &mut Conn) -> QueryResult<$answer>
        where
            Conn: diesel::connection::LoadConnection<Backend = DB>,
            $($bounds)*
        {
            crate::connection::now(async {
                let $link = &mut crate::connection::Link::<Run, _>::new(conn);
                $body
            })
        }
    };
    (
        @awaited [$($bounds:tt)*] [$($attribute:meta,)*]
        $name:ident ($self:ident, $link:ident $(, $n:ident: $n_type:ty)*) $answer:ty, $body:block
    ) => {
        /// The asynchronous form of the blocking method of this name.
        ///
        /// # Errors
        /// Those of the blocking method.
        pub fn $name<'c, Conn, DB>(
            &'c $self,
            $($n: $n_type,)*
            conn: &'c mut Conn,
        ) -> crate::connection::BoxFuture<'c, QueryResult<$answer>>
        where
            Conn: diesel_async::AsyncConnection<Backend = DB>,
            $($bounds)*
        {
            Box::pin(async move {
                let $link = &mut crate::connection::Link::<Run, _>::new(conn);
                $body
            })
        }
    };
}

pub(crate) use paired;
