//! Granting and revoking access to a tree.

use std::sync::Arc;

pub mod access;
pub mod level;

pub use access::{Access, Denied};
pub use level::{Level, Member, Members};

use super::{
    error::{Error, ErrorKind, Result},
    store::Tx,
};
use crate::id::TreeId;

/// The principal of every request while nobody authenticates.
pub const LOCAL_PRINCIPAL: &str = "local";

/// Longest name of a principal, in bytes.
pub const NAME_MAX: usize = 255;

/// Most members of a tree beside its owner.
pub const MEMBERS_MAX: usize = 1000;

/// The result of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The principal is new.
    New,
    /// The principal had a level before.
    Changed,
}

/// Grants a principal a level. `by` is the level of the requesting principal; `None`, of
/// the server itself and while nobody authenticates, may do everything.
///
/// # Errors
/// 403 beyond the level of the requesting principal; 409 `last_owner` or `too_many`; or the storage
/// failed.
pub async fn grant(
    tx: &mut dyn Tx,
    tree: TreeId,
    principal: &Arc<str>,
    level: Level,
    by: Option<Level>,
) -> Result<Granted> {
    let members = tx.members(tree).await?;
    let before = members.level(principal);
    ensure_within(by, before, Some(level))?;
    if before == Some(level) {
        return Ok(Granted::Changed);
    }
    if before == Some(Level::Owner) {
        ensure_other_owner(tx, tree, &members, principal).await?;
    }
    if before.is_none() && members.rows.len() >= MEMBERS_MAX {
        return Err(Error::conflict(
            "too_many",
            format!("The thread is shared with {MEMBERS_MAX} principals: remove some first"),
        ));
    }
    tx.put_member(tree, principal.clone(), Some(level)).await?;
    Ok(match before {
        Some(_) => Granted::Changed,
        None => Granted::New,
    })
}

/// Revokes the level of a principal. `by` is the level of the requesting principal; `None` may do
/// everything.
///
/// # Errors
/// 403 beyond the level of the requesting principal; 404 `member_not_found`; 409 `last_owner`; or the
/// storage failed.
pub async fn revoke(
    tx: &mut dyn Tx,
    tree: TreeId,
    principal: &Arc<str>,
    by: Option<Level>,
) -> Result<()> {
    let members = tx.members(tree).await?;
    let before = members.level(principal);
    if before.is_none() {
        return Err(Error::missing(
            "member_not_found",
            format!("The thread is not shared with `{principal}`"),
        ));
    }
    ensure_within(by, before, None)?;
    if before == Some(Level::Owner) {
        ensure_other_owner(tx, tree, &members, principal).await?;
    }
    Ok(tx.put_member(tree, principal.clone(), None).await?)
}

/// Refuses to grant, change or revoke a level above the one of the requesting principal.
fn ensure_within(by: Option<Level>, before: Option<Level>, after: Option<Level>) -> Result<()> {
    match by {
        Some(by) if before.max(after) > Some(by) => Err(Error::refused(
            ErrorKind::Forbidden,
            "forbidden",
            format!("A {by} cannot give, change or take away a level above their own"),
        )),
        _ => Ok(()),
    }
}

/// Checks that a tree has another owner than `leaving`, and makes that one its first owner if
/// `leaving` was.
async fn ensure_other_owner(
    tx: &mut dyn Tx,
    tree: TreeId,
    members: &Members,
    leaving: &Arc<str>,
) -> Result<()> {
    let all = members.all();
    let mut others = all
        .iter()
        .filter(|one| one.level == Level::Owner && one.principal != *leaving);
    let Some(next) = others.next() else {
        return Err(Error::conflict(
            "last_owner",
            format!("`{leaving}` is the only owner: make somebody else an owner first"),
        ));
    };
    if members.owner == *leaving {
        tx.set_owner(tree, next.principal.clone()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reaches_above_their_own_level() {
        use Level::{Manager, Owner, Reader, Writer};
        for (by, before, after) in [
            (Manager, None, Some(Owner)),
            (Manager, Some(Owner), Some(Reader)),
            (Manager, Some(Owner), None),
            (Writer, None, Some(Manager)),
        ] {
            assert!(
                ensure_within(Some(by), before, after).is_err(),
                "{by} {before:?}"
            );
        }
        for (by, before, after) in [
            (Some(Manager), None, Some(Manager)),
            (Some(Manager), Some(Manager), None),
            (Some(Owner), Some(Owner), Some(Reader)),
            (None, Some(Owner), None),
        ] {
            assert!(
                ensure_within(by, before, after).is_ok(),
                "{by:?} {before:?}"
            );
        }
    }
}
