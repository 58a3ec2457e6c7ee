//! The shapes that are measured.

pub use diesel_sharded_benches::names::SHAPES;

/// A shape of an update: the rows that it counts, and the results that it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Key,
    Slug,
    KeyAndFilter,
    SlugLoaded,
    SlugReturning,
    TenRows,
    SlugInTransaction,
    SlugLoadedInTransaction,
}

impl Shape {
    pub const ALL: [Shape; 8] = [
        Shape::Key,
        Shape::Slug,
        Shape::KeyAndFilter,
        Shape::SlugLoaded,
        Shape::SlugReturning,
        Shape::TenRows,
        Shape::SlugInTransaction,
        Shape::SlugLoadedInTransaction,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Key => "find(k), execute",
            Shape::Slug => "filter(slug), execute",
            Shape::KeyAndFilter => "find(k).filter(deleted), execute",
            Shape::SlugLoaded => "filter(slug), get_result of the model",
            Shape::SlugReturning => "filter(slug), returning(url_to)",
            Shape::TenRows => "filter(owner), ten rows, execute",
            Shape::SlugInTransaction => "transaction: comment, filter(slug), execute",
            Shape::SlugLoadedInTransaction => {
                "transaction: comment, filter(slug), get_result of the model"
            }
        }
    }

    /// The rows that one update counts.
    pub fn rows(self) -> i64 {
        match self {
            Shape::TenRows => 10,
            _ => 1,
        }
    }

    pub fn is_in_transaction(self) -> bool {
        matches!(
            self,
            Shape::SlugInTransaction | Shape::SlugLoadedInTransaction
        )
    }
}
