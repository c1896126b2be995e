//! Rows of the tree for its operations: read by themselves, or read and changed in a transaction
//! on a connection of its own.

use super::{super::events, changes, family, index, lifecycle, lookup, members, outline, paths};
use crate::{
    checkpoint::Error,
    id::TreeId,
    runs,
    storage::postgres::{
        Store,
        connection::{self, Pool, transaction::OpenTransaction},
    },
    tree,
};

/// Reads rows, and changes them when it is a transaction.
struct Session<C>(C);

impl Store {
    /// Rows to read, each call by itself.
    pub(crate) fn rows(&self) -> Box<dyn tree::Read> {
        Box::new(Session(self.pools.reads.clone()))
    }

    /// A transaction that has locked the row of the tree.
    pub(crate) async fn transaction(&self, tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        Ok(Box::new(Session(self.turns.begin(tree).await?)))
    }
}

/// Runs one operation on any connection, and retries it a few times when a failure is transient.
macro_rules! retry {
    ($session:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {{
        $(let $arg = $($by)? $arg;)*
        connection::retry(&$session.0, move |client| async move {
            $module::$name(&client, $($arg),*).await
        })
        .await
    }};
}

/// Runs one operation in the transaction.
macro_rules! call {
    ($session:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {{
        let statement = $session.0.statement()?;
        let result = $module::$name(statement.client, $($($by)? $arg),*).await;
        statement.end(result)
    }};
}

tree_reads!(retry for Session<Pool>);
tree_reads!(call for Session<OpenTransaction>);
tree_changes!(call for Session<OpenTransaction>);
