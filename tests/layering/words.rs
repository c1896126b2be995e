//! The vocabulary: names in the sources use the terms of the field, and every file says what it holds.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use super::source::{files, sources};

/// Words that are no part of a name, because they leave open what they stand for. What to say
/// instead is the field's term: a message is emitted, not told; a value is stored, not kept; a
/// checkpoint has a position, not a place; a run finishes, it is not concluded.
const REFUSED: &[&str] = &[
    "again",
    "answer",
    "answered",
    "answers",
    "ask",
    "asked",
    "asking",
    "asks",
    "conclude",
    "concluded",
    "continues",
    "door",
    "doors",
    "gave",
    "give",
    "given",
    "gives",
    "ground",
    "held",
    "hold",
    "holding",
    "holds",
    "kept",
    "look",
    "looked",
    "looking",
    "looks",
    "mine",
    "news",
    "noted",
    "ours",
    "place",
    "places",
    "question",
    "questions",
    "rescue",
    "said",
    "same",
    "say",
    "saying",
    "says",
    "seen",
    "sent",
    "settle",
    "settled",
    "settles",
    "spot",
    "stands",
    "tell",
    "telling",
    "tells",
    "theirs",
    "told",
    "undone",
    "visitor",
    "whose",
];

/// Names that others chose: fields of the protocol, columns, functions of libraries.
const CHOSEN_BY_OTHERS: &[&str] = &[
    // serde
    "Visitor",
    "visitor",
    // a field of messages in the protocol
    "settled_checkpoint_id",
    // a key of the state of the research demo
    "questions",
];

#[test]
fn names_are_made_of_the_terms_of_the_field() {
    let mut wrong: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let tokens: TokenStream = source.text.parse().unwrap();
        let mut names = BTreeSet::new();
        names_of(tokens, &mut names);
        for name in names {
            let refused = words(&name)
                .into_iter()
                .find(|word| REFUSED.contains(&word.as_str()));
            if let Some(word) = refused
                && !CHOSEN_BY_OTHERS.contains(&name.as_str())
            {
                let place = format!("src/{}", source.path);
                wrong
                    .entry(place)
                    .or_default()
                    .insert(format!("{name} ({word})"));
            }
        }
    }
    let wrong: BTreeSet<String> = wrong
        .into_iter()
        .map(|(path, names)| {
            format!(
                "{path}: {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", super::list(&wrong));
}

#[test]
fn the_first_line_of_every_file_says_what_the_file_holds() {
    let wrong: BTreeSet<String> = files("src", "src/derive", "")
        .iter()
        .chain(&files("tests", "tests/ui", ""))
        .chain(&files("examples", "", ""))
        .filter(|source| {
            let first = source.text.lines().next().unwrap_or_default();
            let sentence = first.strip_prefix("//! ").unwrap_or_default();
            sentence.split_whitespace().count() < 4
        })
        .map(|source| source.path.clone())
        .collect();
    assert!(wrong.is_empty(), "{}", super::list(&wrong));
}

#[test]
fn words_of_names_are_found_in_snake_and_camel_case() {
    assert_eq!(words("HTTPAnswerOf"), ["http", "answer", "of"]);
    assert_eq!(words("__given__rows2"), ["given", "rows2"]);
    assert_eq!(words("MOST_TOLD"), ["most", "told"]);
    let mut names = BTreeSet::new();
    let text = "fn told_of(x: Held) { \"said\"; } #[cfg(test)] mod tests { fn asked() {} }";
    names_of(text.parse().unwrap(), &mut names);
    assert!(names.contains("told_of") && names.contains("Held"));
    assert!(!names.contains("said") && !names.contains("asked"));
}

/// Every name in the tokens, but those of tests.
fn names_of(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if super::names::is_test_attribute(&tokens[at..]) {
            at = super::names::Names::default().skip_item(&tokens, at + 2);
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => names_of(group.stream(), names),
            TokenTree::Ident(name) => drop(names.insert(name.to_string())),
            _ => {}
        }
        at += 1;
    }
}

/// The words of a name in snake or camel case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![];
    for part in name.split('_') {
        let letters: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (at, letter) in letters.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| letters[before]);
            let after = letters.get(at + 1);
            let begins = letter.is_uppercase()
                && (before.is_some_and(|before| !before.is_uppercase())
                    || after.is_some_and(|after| after.is_lowercase()));
            if begins && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            word.extend(letter.to_lowercase());
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}
