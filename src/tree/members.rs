//! Who may do what with a tree: its owner and those it is shared with.

use std::{fmt, str::FromStr, sync::Arc};

use super::{Error, Kind, Tx};
use crate::id::TreeId;

/// Longest name of a principal, in bytes.
pub const NAME_MAX: usize = 255;

/// What somebody may do; each may do all that those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Read.
    Reader,
    /// Post, run, branch, tag and fork.
    Writer,
    /// Share, up to this level.
    Manager,
    /// Delete, and share without a limit.
    Owner,
}

impl Level {
    /// Every word with its meaning.
    pub const ALL: &[(&'static str, Self)] = &[
        ("reader", Self::Reader),
        ("writer", Self::Writer),
        ("manager", Self::Manager),
        ("owner", Self::Owner),
    ];

    /// The word stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Manager => "manager",
            Self::Owner => "owner",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, level)| *level)
            .ok_or_else(|| format!("`{text}` is not a level"))
    }
}

/// Somebody a tree belongs to or is shared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub principal: Arc<str>,
    /// What they may do.
    pub level: Level,
}

/// Everybody with a level on a tree: its first owner, and rows of those it is shared with.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// `trees.owner`: an owner whatever the rows say.
    pub owner: Arc<str>,
    /// Rows of `tree_members`.
    pub rows: Vec<Member>,
}

impl Members {
    /// Everybody, owners first, then by name.
    pub fn all(&self) -> Vec<Member> {
        let mut all: Vec<Member> = self
            .rows
            .iter()
            .filter(|one| one.principal != self.owner)
            .cloned()
            .collect();
        all.push(Member {
            principal: self.owner.clone(),
            level: Level::Owner,
        });
        all.sort_by(|a, b| (b.level, &a.principal).cmp(&(a.level, &b.principal)));
        all
    }

    /// What somebody may do.
    pub fn level(&self, principal: &str) -> Option<Level> {
        let all = self.all();
        let found = all.iter().find(|one| *one.principal == *principal);
        found.map(|one| one.level)
    }
}

/// What became of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The principal is new.
    New,
    /// The principal had a level before.
    Changed,
}

/// Gives somebody a level. `by` is the level of whoever asks; `None` may do everything.
///
/// # Errors
/// 403 beyond the level of whoever asks; 409 `last_owner`; or the storage failed.
pub async fn grant(
    tx: &mut dyn Tx,
    tree: TreeId,
    principal: &Arc<str>,
    level: Level,
    by: Option<Level>,
) -> Result<Granted, Error> {
    let members = tx.members(tree).await?;
    let before = members.level(principal);
    within(by, before, Some(level))?;
    if before == Some(level) {
        return Ok(Granted::Changed);
    }
    if before == Some(Level::Owner) {
        pass_on(tx, tree, &members, principal).await?;
    }
    tx.put_member(tree, principal.clone(), Some(level)).await?;
    Ok(match before {
        Some(_) => Granted::Changed,
        None => Granted::New,
    })
}

/// Takes somebody's level away. `by` is the level of whoever asks; `None` may do everything.
///
/// # Errors
/// 403 beyond the level of whoever asks; 404 `member_not_found`; 409 `last_owner`; or the
/// storage failed.
pub async fn revoke(
    tx: &mut dyn Tx,
    tree: TreeId,
    principal: &Arc<str>,
    by: Option<Level>,
) -> Result<(), Error> {
    let members = tx.members(tree).await?;
    let before = members.level(principal);
    if before.is_none() {
        return Err(Error::missing(
            "member_not_found",
            format!("The thread is not shared with `{principal}`"),
        ));
    }
    within(by, before, None)?;
    if before == Some(Level::Owner) {
        pass_on(tx, tree, &members, principal).await?;
    }
    Ok(tx.put_member(tree, principal.clone(), None).await?)
}

/// Nobody gives, changes or takes away a level above their own.
fn within(by: Option<Level>, before: Option<Level>, after: Option<Level>) -> Result<(), Error> {
    match by {
        Some(by) if before.max(after) > Some(by) => Err(Error::refused(
            Kind::Forbidden,
            "forbidden",
            format!("A {by} cannot give, change or take away a level above their own"),
        )),
        _ => Ok(()),
    }
}

/// Lets another owner own the tree, since `leaving` will not any more.
async fn pass_on(
    tx: &mut dyn Tx,
    tree: TreeId,
    members: &Members,
    leaving: &Arc<str>,
) -> Result<(), Error> {
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

    fn shared() -> Members {
        let row = |principal: &str, level| Member {
            principal: principal.into(),
            level,
        };
        Members {
            owner: "ann".into(),
            rows: vec![
                row("zoe", Level::Reader),
                row("bob", Level::Owner),
                row("ann", Level::Reader),
                row("cid", Level::Manager),
            ],
        }
    }

    #[test]
    fn the_owner_of_the_tree_is_one_whatever_its_row_says() {
        let members = shared();
        assert_eq!(members.level("ann"), Some(Level::Owner));
        assert_eq!(members.level("bob"), Some(Level::Owner));
        assert_eq!(members.level("zoe"), Some(Level::Reader));
        assert_eq!(members.level("eve"), None);
        let names: Vec<_> = members
            .all()
            .iter()
            .map(|one| one.principal.to_string())
            .collect();
        assert_eq!(names, ["ann", "bob", "cid", "zoe"]);
    }

    #[test]
    fn nobody_reaches_above_their_own_level() {
        use Level::{Manager, Owner, Reader, Writer};
        for (by, before, after) in [
            (Manager, None, Some(Owner)),
            (Manager, Some(Owner), Some(Reader)),
            (Manager, Some(Owner), None),
            (Writer, None, Some(Manager)),
        ] {
            assert!(within(Some(by), before, after).is_err(), "{by} {before:?}");
        }
        for (by, before, after) in [
            (Some(Manager), None, Some(Manager)),
            (Some(Manager), Some(Manager), None),
            (Some(Owner), Some(Owner), Some(Reader)),
            (None, Some(Owner), None),
        ] {
            assert!(within(by, before, after).is_ok(), "{by:?} {before:?}");
        }
    }

    #[test]
    fn levels_are_read_as_they_are_written() {
        for (word, level) in Level::ALL {
            assert_eq!(word.parse(), Ok(*level));
            assert_eq!(level.to_string(), *word);
        }
        assert!("admin".parse::<Level>().is_err());
    }
}
