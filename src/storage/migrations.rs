//! The numbered migrations of both databases: which of them a database lacks.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

/// A migration of this program.
pub(super) struct Migration {
    /// Its number: migrations are applied in the order of these.
    pub number: i32,
    /// What its file is named behind the number.
    pub name: &'static str,
    /// What it does.
    pub sql: &'static str,
}

/// A row of `refinery_schema_history`, the table in which the library `refinery` listed migrations. Databases
/// that were made with it go on with the same table.
pub(super) struct Applied {
    /// The number of the migration.
    pub number: i32,
    /// Its name.
    pub name: String,
    /// Its checksum, in decimal digits.
    pub checksum: String,
}

/// Why a database does not fit this program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It has migrations behind the last one of this program.
    Newer {
        /// The number of its last one.
        found: i32,
        /// That of the program.
        known: i32,
    },
    /// This migration is another one than the program's, or missing on one of the two sides.
    Foreign(String),
}

/// Makes the table of the migrations that were applied.
pub(super) const HISTORY: &str = "CREATE TABLE IF NOT EXISTS refinery_schema_history (version int4 PRIMARY KEY, \
     name VARCHAR(255), applied_on VARCHAR(255), checksum VARCHAR(255))";

impl Migration {
    /// The migration of a file that is named `V001__what`.
    pub(super) fn of(file: &'static str, sql: &'static str) -> Self {
        let (number, name) = file.split_once("__").unwrap_or((file, ""));
        Self {
            // A test of the names of files sees to it that there is a number.
            number: number.trim_start_matches('V').parse().unwrap_or(0),
            name,
            sql,
        }
    }

    /// What tells this migration from another one of its number.
    pub(super) fn checksum(&self) -> String {
        let mut hasher = SipHasher13::new();
        self.name.hash(&mut hasher);
        self.number.hash(&mut hasher);
        self.sql.hash(&mut hasher);
        hasher.finish().to_string()
    }

    fn is(&self, applied: &Applied) -> bool {
        self.name == applied.name && self.checksum() == applied.checksum
    }
}

/// The migrations of the program, in order, that were not applied yet.
///
/// # Errors
/// The database is that of another program.
pub(super) fn missing(
    mut program: Vec<Migration>,
    applied: &[Applied],
) -> Result<Vec<Migration>, Unfit> {
    let known = program.iter().map(|one| one.number).max().unwrap_or(0);
    let found = applied.iter().map(|one| one.number).max().unwrap_or(0);
    if found > known {
        return Err(Unfit::Newer { found, known });
    }
    for one in applied {
        if !program
            .iter()
            .any(|own| own.number == one.number && own.is(one))
        {
            return Err(Unfit::Foreign(format!("V{}__{}", one.number, one.name)));
        }
    }
    program.retain(|own| applied.iter().all(|one| one.number != own.number));
    // One with a smaller number was written against an older schema than the database has.
    match program.iter().find(|own| own.number <= found) {
        Some(late) => Err(Unfit::Foreign(format!("V{}__{}", late.number, late.name))),
        None => Ok(program),
    }
}

/// The migrations in a folder of `sql`, by the names of their files without `.sql`.
macro_rules! migrations {
    ($folder:literal: $($file:literal)*) => {
        vec![$($crate::storage::migrations::Migration::of(
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $folder, "/", $file, ".sql")),
        )),*]
    };
}
pub(super) use migrations;

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Vec<Migration> {
        vec![
            Migration::of("V001__first", "CREATE TABLE a (b int)"),
            Migration::of("V003__third", "CREATE TABLE c (d int)"),
        ]
    }

    fn applied(migration: &Migration) -> Applied {
        Applied {
            number: migration.number,
            name: migration.name.into(),
            checksum: migration.checksum(),
        }
    }

    #[test]
    fn checksums_are_those_that_databases_made_with_refinery_have() {
        let first = include_str!("../../sql/sqlite/V001__foundation.sql");
        let first = Migration::of("V001__foundation", first);
        assert_eq!((first.number, first.name), (1, "foundation"));
        assert_eq!(first.checksum(), "9519966208496052944");
        let crons = include_str!("../../sql/sqlite/V024__crons.sql");
        let crons = Migration::of("V024__crons", crons);
        assert_eq!(crons.checksum(), "9219264984234855586");
    }

    #[test]
    fn a_database_lacks_what_comes_behind_its_last_migration() {
        let numbers = |applied: &[Applied]| {
            let missing = missing(program(), applied).unwrap();
            missing.iter().map(|one| one.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[]), [1, 3]);
        let [first, third] = &program()[..] else {
            panic!("two migrations");
        };
        assert_eq!(numbers(&[applied(first)]), [3]);
        assert!(numbers(&[applied(first), applied(third)]).is_empty());
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let refused = |applied: &[Applied]| missing(program(), applied).err().unwrap();
        let [first, third] = &program()[..] else {
            panic!("two migrations");
        };
        let later = Applied {
            number: 9,
            ..applied(first)
        };
        let newer = Unfit::Newer { found: 9, known: 3 };
        assert_eq!(refused(&[applied(first), later]), newer);
        let changed = Applied {
            checksum: "1".into(),
            ..applied(first)
        };
        let first_name = Unfit::Foreign("V1__first".into());
        assert_eq!(refused(&[changed]), first_name);
        let unknown = Applied {
            number: 2,
            name: "second".into(),
            checksum: String::new(),
        };
        let unknown_name = Unfit::Foreign("V2__second".into());
        assert_eq!(refused(&[applied(first), unknown]), unknown_name);
        assert_eq!(refused(&[applied(third)]), first_name);
    }
}
