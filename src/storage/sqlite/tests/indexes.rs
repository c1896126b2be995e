//! Which indexes the statements of this room read, and those of its triggers: one that none of them reads is only written.

use std::collections::BTreeSet;

use rusqlite::config::DbConfig;

use super::plans::Plans;
use crate::storage::tests::source;

impl Plans {
    /// The indexes that somebody has created: those of keys have no text.
    fn indexes(&self) -> BTreeSet<String> {
        let query = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
        let mut names = self.db.prepare(query).unwrap();
        let names = names.query_map([], |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    }
}

/// Whether a step of a plan reads this index.
fn reads(step: &str, index: &str) -> bool {
    let named = step.split_once(" INDEX ").map(|(_, named)| named);
    let word = named.and_then(|named| named.split(' ').next());
    word == Some(index)
}

#[test]
fn every_index_is_read_by_a_statement() {
    let statements = source::statements("src/storage/sqlite");
    let plans = Plans::new();
    let with_triggers = DbConfig::SQLITE_DBCONFIG_TRIGGER_EQP;
    assert!(plans.db.set_db_config(with_triggers, true).unwrap());
    let mut unread = plans.indexes();
    assert!(unread.len() > 30, "{unread:?}");
    plans.fill();
    for statement in &statements {
        let steps = plans.steps(&statement.text);
        unread.retain(|index| !steps.iter().any(|step| reads(step, index)));
    }
    assert!(
        unread.is_empty(),
        "no plan of a statement reads these, unless they are there for a foreign key, which is a reason to except \
         one here by name: {unread:?}"
    );
}
