//! Fragments without the lifetimes and types of the code that wrote them.

use diesel::query_builder::QueryFragment;

/// A fragment as its text and its binds.
pub type Detached<DB> = Box<dyn QueryFragment<DB> + Send + Sync>;

#[cfg(feature = "sqlite")]
mod sqlite {
    use diesel::backend::Backend;
    use diesel::internal::derives::multiconnection::AstPassHelper;
    use diesel::query_builder::{AstPass, MoveableBindCollector, QueryBuilder, QueryFragment};
    use diesel::result::QueryResult;
    use diesel::sqlite::Sqlite;

    type Binds<'b> = <Sqlite as Backend>::BindCollector<'b>;

    struct Written {
        text: String,
        binds: <Binds<'static> as MoveableBindCollector<Sqlite>>::BindData,
    }

    impl QueryFragment<Sqlite> for Written {
        fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
            out.push_sql(&self.text); // with a `?` for each bind
            if let Some((binds, ())) = out.bind_collector() {
                binds.append_bind_data(&self.binds);
            } else if let Some((shown, _)) = out.debug_binds() {
                Binds::push_debug_binds(&self.binds, shown);
            }
            Ok(())
        }
    }

    pub(in crate::backend) fn detach(
        fragment: &dyn QueryFragment<Sqlite>,
    ) -> QueryResult<super::Detached<Sqlite>> {
        let mut text = <Sqlite as Backend>::QueryBuilder::default();
        fragment.to_sql(&mut text, &Sqlite)?;
        let mut binds = Binds::default();
        fragment.collect_binds(&mut binds, &mut (), &Sqlite)?;
        Ok(Box::new(Written {
            text: text.finish(),
            binds: binds.moveable(),
        }))
    }
}
#[cfg(feature = "sqlite")]
pub(super) use self::sqlite::detach;
