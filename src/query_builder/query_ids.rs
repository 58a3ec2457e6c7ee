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

pub(crate) use query_ids;
