//! Levels of access to a tree, and the members who have one.

use std::sync::Arc;

use crate::words::words;

words! {
    /// What a principal may do with a tree; each level includes those before it.
    pub enum Level, "level" {
        /// Read.
        Reader = "reader",
        /// Post, run, branch, tag and fork.
        Writer = "writer",
        /// Share, up to this level.
        Manager = "manager",
        /// Delete, and share without a limit.
        Owner = "owner",
    }
}

impl Level {
    /// The words of this level and those above it.
    pub fn and_above(self) -> Vec<&'static str> {
        let all = Self::ALL.iter().filter(|(_, level)| *level >= self);
        all.map(|(word, _)| *word).collect()
    }
}

/// A principal who has a level on a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The principal.
    pub principal: Arc<str>,
    /// Their level.
    pub level: Level,
}

/// Everybody who has a level on a tree: its first owner, and the principals it is shared with.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// `trees.owner`, who is an owner regardless of the rows.
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

    /// The level of a principal.
    pub fn level(&self, principal: &str) -> Option<Level> {
        let all = self.all();
        let found = all.iter().find(|one| *one.principal == *principal);
        found.map(|one| one.level)
    }
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
    fn levels_are_read_as_they_are_written() {
        for (word, level) in Level::ALL {
            assert_eq!(word.parse(), Ok(*level));
            assert_eq!(level.to_string(), *word);
        }
        assert_eq!(Level::Manager.and_above(), ["manager", "owner"]);
        assert!("admin".parse::<Level>().is_err());
    }
}
