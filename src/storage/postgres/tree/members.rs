//! Who a tree belongs to and who it is shared with.

use std::sync::Arc;

use deadpool_postgres::Object;

use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    storage::postgres::{
        Store,
        columns::{column, word},
        connection::{self, Failure, prepare},
    },
    tree::members::{Level, Member, Members},
};

const OWNER: &str = "SELECT owner FROM trees WHERE tree_id = $1";

const MEMBERS: &str = "
SELECT principal, level FROM tree_members WHERE tree_id = $1 ORDER BY principal COLLATE \"C\"";

const PUT: &str = "
INSERT INTO tree_members (tree_id, principal, level) VALUES ($1, $2, $3)
ON CONFLICT (tree_id, principal) DO UPDATE SET level = EXCLUDED.level";

const DELETE: &str = "DELETE FROM tree_members WHERE tree_id = $1 AND principal = $2";

const SET_OWNER: &str = "UPDATE trees SET owner = $2 WHERE tree_id = $1";

const LEVEL: &str = "
SELECT CASE WHEN o.owner = $2 THEN 'owner' ELSE m.level END AS level
  FROM threads t JOIN trees o ON o.tree_id = t.tree_id LEFT JOIN tree_members m ON m.tree_id = t.tree_id AND m.principal = $2
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL";

pub(super) async fn members(db: &Object, tree: TreeId) -> Result<Members, Failure> {
    let statement = prepare(db, OWNER).await?;
    let owner = db.query_opt(&statement, &[&tree.0]).await?;
    let owner = match &owner {
        Some(row) => column::<&str>(row, "owner")?,
        None => "",
    };
    let statement = prepare(db, MEMBERS).await?;
    let rows = db.query(&statement, &[&tree.0]).await?;
    let rows = rows.iter().map(|row| {
        Ok(Member {
            principal: column::<&str>(row, "principal")?.into(),
            level: word(column(row, "level")?)?,
        })
    });
    Ok(Members {
        owner: owner.into(),
        rows: rows.collect::<Result<_, Error>>()?,
    })
}

pub(super) async fn put_member(
    db: &Object,
    tree: TreeId,
    principal: &str,
    level: Option<Level>,
) -> Result<(), Failure> {
    match level {
        Some(level) => {
            let statement = prepare(db, PUT).await?;
            db.execute(&statement, &[&tree.0, &principal, &level.as_str()])
                .await?;
        }
        None => {
            let statement = prepare(db, DELETE).await?;
            db.execute(&statement, &[&tree.0, &principal]).await?;
        }
    }
    Ok(())
}

pub(super) async fn set_owner(db: &Object, tree: TreeId, principal: &str) -> Result<(), Failure> {
    let statement = prepare(db, SET_OWNER).await?;
    db.execute(&statement, &[&tree.0, &principal]).await?;
    Ok(())
}

impl Store {
    /// What somebody may do with a living thread.
    pub(crate) async fn level_of(
        &self,
        thread: ThreadId,
        principal: Arc<str>,
    ) -> Result<Option<Level>, Error> {
        let principal = &*principal;
        let row = connection::retry(&self.pools.reads, |client| async move {
            let statement = prepare(&client, LEVEL).await?;
            Ok(client
                .query_opt(&statement, &[&thread.0, &principal])
                .await?)
        })
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        column::<Option<&str>>(&row, "level")?.map(word).transpose()
    }
}
