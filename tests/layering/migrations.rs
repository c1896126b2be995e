//! The numbered migrations of both databases.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers that no database has. They were merged into others before a release had them, and nobody
/// may take them: a database stops at a number below the last one that it has applied.
const UNUSED: &[u32] = &[9, 17, 19, 20, 26, 29];

#[test]
fn a_migration_has_a_number_of_its_own_and_one_name_in_both_databases() {
    let mut files = Vec::new();
    for database in ["postgres", "sqlite"] {
        let folder = format!("{}/sql/{database}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            files.push((database, name));
        }
    }
    let wrong = mistakes(&files);
    assert!(wrong.is_empty(), "{}", super::list(&wrong));
}

#[test]
fn a_program_has_every_migration_of_the_folder_in_order() {
    for database in ["postgres", "sqlite"] {
        let root = env!("CARGO_MANIFEST_DIR");
        let folder = std::fs::read_dir(format!("{root}/sql/{database}")).unwrap();
        let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<_> = files.collect();
        let list = format!("src/storage/{database}/migrate.rs");
        let source = std::fs::read_to_string(format!("{root}/{list}")).unwrap();
        let listed = source.lines().map(|line| line.trim().trim_matches('"'));
        let listed = listed.filter(|line| line.starts_with('V') && line.contains("__"));
        let listed: Vec<_> = listed.map(|name| format!("{name}.sql")).collect();
        assert!(
            files.iter().eq(&listed),
            "{list} must name the files of sql/{database} in their order: {files:?}"
        );
    }
}

/// What is wrong with migrations, which are files of databases.
fn mistakes(files: &[(&str, String)]) -> BTreeSet<String> {
    let mut wrong = BTreeSet::new();
    let mut names: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (database, name) in files {
        let number = name
            .strip_prefix('V')
            .and_then(|rest| rest.strip_suffix(".sql"))
            .and_then(|rest| rest.split_once("__"))
            .filter(|(digits, words)| digits.len() == 3 && !words.is_empty())
            .and_then(|(digits, _)| digits.parse().ok());
        let Some(number) = number else {
            wrong.insert(format!("{database}/{name} is not named V001__what.sql"));
            continue;
        };
        names.entry(number).or_default().insert(name);
        if !taken.insert((database, number)) {
            wrong.insert(format!("{database} has two migrations {number}"));
        }
    }
    for (number, names) in &names {
        if names.len() > 1 {
            wrong.insert(format!("migration {number} has several names: {names:?}"));
        }
        if UNUSED.contains(number) {
            wrong.insert(format!("migration {number} has a number that is not used"));
        }
    }
    let last = names.keys().last().copied().unwrap_or(0);
    for number in 1..last {
        if !names.contains_key(&number) && !UNUSED.contains(&number) {
            wrong.insert(format!("there is no migration {number}"));
        }
    }
    wrong
}

#[test]
fn two_migrations_of_one_number_a_gap_and_another_name_are_mistakes() {
    let of = |files: &[(&'static str, &str)]| {
        let files: Vec<_> = files.iter().map(|(d, n)| (*d, (*n).to_owned())).collect();
        mistakes(&files).len()
    };
    let first = [("sqlite", "V001__a.sql"), ("postgres", "V001__a.sql")];
    assert_eq!(of(&first), 0);
    let one_alone = [first[0], first[1], ("postgres", "V002__b.sql")];
    assert_eq!(of(&one_alone), 0);
    let gap = [first[0], ("sqlite", "V003__c.sql")];
    assert_eq!(of(&gap), 1);
    let two = [first[0], ("sqlite", "V001__b.sql")];
    assert_eq!(of(&two), 2, "a number twice, and with two names");
    assert_eq!(of(&[first[0], ("postgres", "V001__b.sql")]), 1);
    assert_eq!(of(&[first[0], ("sqlite", "V2__b.sql")]), 1);
}
