//! Query ids, by which Diesel keeps statements prepared.

/// Implements `QueryId` for a statement whose text depends on nothing but its types and the dialect, so that Diesel can keep it
/// prepared. A part behind the semicolon is left out: `V`, the changes as they were written, has a static id where `Ch`, Diesel's
/// own tree for them, has none.
macro_rules! query_ids {
    ($statement:ident<$lifetime:lifetime, $($part:ident),+ $(; $untold:ident)?>) => {
        impl<$lifetime, $($part: QueryId,)+ $($untold)?> QueryId for $statement<$lifetime, $($part,)+ $($untold)?> {
            type QueryId = $statement<'static, $($part::QueryId,)+ $(query_ids!(@unit $untold))?>;
            const HAS_STATIC_QUERY_ID: bool = $($part::HAS_STATIC_QUERY_ID)&&+;
        }
    };
    (@unit $untold:ident) => { () };
}

/// Implements `QueryId` for statements whose text differs between values of one type, as by their number of rows or keys: no id stands
/// for one text. Generics stand in brackets before the type.
macro_rules! no_query_id {
    ($([$($generics:tt)*] $statement:ty),+ $(,)?) => {$(
        impl<$($generics)*> ::diesel::query_builder::QueryId for $statement {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )+};
}

pub(crate) use {no_query_id, query_ids};
