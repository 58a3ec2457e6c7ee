//! Blocking and asynchronous functions and methods, written once.

/// Writes functions and methods twice, in two modules: in one `Run` is [`Blocking`](super::Blocking), in the other it is `Async`. A file
/// can hold only one `paired!`, because the macro declares modules.
///
/// A function with type parameters begins an operation with this `Run`. All other functions, and all methods, have a `link`: the body is
/// async code over a [`Link`](super::Link) to the caller's connection, which the caller passes last. One generic function could not
/// serve both: the compiler knows that a future is `Send` only for a concrete `Run`. `#[awaited(..)]` adds the bounds for that.
///
/// The docs go to the blocking form. Two kinds of handles, with `;` in between, may share their methods.
macro_rules! paired {
    (@$run:ident
        $(#[$attribute:meta])*
        pub fn $name:ident<$($param:ident),+>($($n:ident: $n_type:ty),+ $(,)?) -> $operation:ty
        where $($bounded:ty: $bound:path,)+
        $body:block
        $($others:tt)*
    ) => {
        crate::connection::paired! { @begins $run [$(#[$attribute])*] $name
            pub fn $name<$($param),+>($($n: $n_type),+) -> $operation
            where
                $($bounded: $bound,)+
            $body
        }
        crate::connection::paired! { @$run $($others)* }
    };
    (@begins blocking [$($attributes:tt)*] $name:ident $function:item) => {
        $($attributes)*
        $function
    };
    (@begins asynchronous $attributes:tt $name:ident $function:item) => {
        #[doc = concat!("The asynchronous form of [`", stringify!($name), "`](super::", stringify!($name), "()).")]
        $function
    };
    (@$run:ident
        $(#[$attribute:meta])*
        pub fn $name:ident($($parameters:tt)*) -> QueryResult<$answer:ty>
        where $($bounded:ty: $bound:path,)+
        $body:block
        $($others:tt)*
    ) => {
        crate::connection::paired! {
            @functions $run
            { $(#[$attribute])* pub fn $name($($parameters)*) -> QueryResult<$answer> $body }
            [$($bounded: $bound,)+] [] []
        }
        crate::connection::paired! { @$run $($others)* }
    };
    (@$run:ident
        $(
            $(#[awaited($($sent:tt)+)])?
            impl<$($param:ident $(: $param_bound:path)?),*> $handle:ty
            where $($bounded:ty: $bound:path),+ $(,)?
        );+
        { $($methods:tt)+ }
        $($others:tt)*
    ) => {
        crate::connection::paired! {
            @handles $run { $($methods)+ }
            $(impl<$($param $(: $param_bound)?),*> $handle [$($bounded: $bound,)+] [$($($sent)+,)?] [$($param)*])+
        }
        crate::connection::paired! { @$run $($others)* }
    };
    (@$run:ident) => {};
    (@handles $run:ident $methods:tt $(
        impl<$($param:ident $(: $param_bound:path)?),*> $handle:ty [$($bounds:tt)+] $sent:tt $params:tt
    )+) => {
        $(impl<$($param $(: $param_bound)?),*> $handle {
            crate::connection::paired! { @functions $run $methods [$($bounds)+] $sent $params }
        })+
    };
    (@functions $run:ident {
        $(
            $(#[$attribute:meta])*
            pub fn $name:ident $(<$of:ident>)? ($($parameters:tt)*) -> QueryResult<$answer:ty>
            $body:block
        )+
    } $bounds:tt $sent:tt $params:tt) => {
        $(crate::connection::paired! {
            @taking ($($parameters)*) $params
            @$run [$(#[$attribute])*] $name [$($of)?] $bounds $sent [$answer] $body
        })+
    };
    // What a function takes: a handle by reference or by value, or none. A handle that it takes by value has to outlive the future.
    (@taking (&$self:ident, $link:ident: Link $($others:tt)*) $params:tt $($function:tt)+) => {
        crate::connection::paired! { $($function)+ [&$self,] [&'c $self,] [] $link $($others)* }
    };
    (@taking ($self:ident, $link:ident: Link $($others:tt)*) $params:tt $($function:tt)+) => {
        crate::connection::paired! { $($function)+ [$self,] [$self,] $params $link $($others)* }
    };
    (@taking ($link:ident: Link $($others:tt)*) $params:tt $($function:tt)+) => {
        crate::connection::paired! { $($function)+ [] [] [] $link $($others)* }
    };
    (
        @blocking [$($attributes:tt)*] $name:ident [$($of:ident)?] [$($bounds:tt)*] $sent:tt [$answer:ty] $body:block
        [$($receiver:tt)*] $awaited_receiver:tt $taken:tt $link:ident $(, $n:ident: $n_type:ty)*
    ) => {
        $($attributes)*
        pub fn $name<Conn, DB $(, $of)?>($($receiver)* $($n: $n_type,)* conn: &mut Conn) -> QueryResult<$answer>
        where
            Conn: diesel::connection::LoadConnection<Backend = DB>,
            $($bounds)*
        {
            crate::connection::now(async {
                let $link = &mut crate::connection::Link::<crate::connection::Over<Run, _>>::new(conn);
                $body
            })
        }
    };
    (
        @asynchronous $attributes:tt $name:ident [$($of:ident)?] [$($bounds:tt)*] [$($sent:tt)*] [$answer:ty] $body:block
        $receiver:tt [$($awaited_receiver:tt)*] [$($taken:ident)*] $link:ident $(, $n:ident: $n_type:ty)*
    ) => {
        /// The asynchronous form of the blocking one of this name.
        ///
        /// # Errors
        /// Those of the blocking form.
        pub fn $name<'c, Conn, DB $(, $of)?>(
            $($awaited_receiver)*
            $($n: $n_type,)*
            conn: &'c mut Conn,
        ) -> crate::connection::BoxFuture<'c, QueryResult<$answer>>
        where
            Conn: diesel_async::AsyncConnection<Backend = DB>,
            $($bounds)*
            $($sent)*
            $($taken: 'c,)*
            $($of: 'c,)?
        {
            Box::pin(async move {
                let $link = &mut crate::connection::Link::<crate::connection::Over<Run, _>>::new(conn);
                $body
            })
        }
    };
    ($($items:tt)+) => {
        mod blocking {
            use super::*;
            use crate::connection::Blocking as Run;

            crate::connection::paired! { @blocking $($items)+ }
        }

        /// The same on connections of `diesel_async`.
        #[cfg(feature = "async")]
        #[doc(hidden)]
        pub mod asynchronous {
            use super::*;
            use crate::connection::Async as Run;

            crate::connection::paired! { @asynchronous $($items)+ }
        }
    };
}

pub(crate) use paired;
