//! Rows of a tree for its operations: read through the readers, or read and changed in a
//! transaction that has the writing thread to itself.

use super::{super::events, changes, family, index, lifecycle, lookup, members, outline, paths};
use crate::{
    checkpoint::Result,
    storage::sqlite::{
        Store,
        connection::{readers, transaction::OpenTransaction},
    },
};

/// Reads rows, and changes them when it is a transaction.
pub(crate) struct Session<C>(C);

impl Store {
    /// Rows to read, each call by itself.
    pub(crate) fn rows(&self) -> Session<readers::Handle> {
        Session(self.readers.handle())
    }

    /// A transaction, when its turn has come. Nothing else is written until its end, so there is
    /// no row to lock.
    pub(crate) async fn transaction(&self) -> Result<Session<OpenTransaction>> {
        Ok(Session(self.writer.transaction().await?))
    }
}

/// Runs one operation of a session.
macro_rules! call {
    ($session:ident, $module:ident::$name:ident, $($([$by:tt])? $arg:ident),*) => {
        $session.0.run(move |db| $module::$name(db, $($($by)? $arg),*)).await
    };
}

tree_reads!(call for Session<readers::Handle>);
tree_reads!(call for Session<OpenTransaction>);
tree_changes!(call for Session<OpenTransaction>);
