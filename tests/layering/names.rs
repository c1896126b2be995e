//! What a source file names: rooms of this crate and foreign crates, outside its tests.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The checks above see what they are meant to see.
#[test]
fn names_are_found_in_every_form_and_not_in_comments_strings_or_tests() {
    let text = r#"
        //! crate::commented
        use crate::{a::B, c::{self, D}, e};
        use rusqlite::Connection;
        fn f(x: &crate::g::H) { tracing::info!(n = crate::i::J, "crate::quoted"); super::k::l(); }
        use backstitch::m;
        mod inner { use super::o::P; use super::super::q; }
        #[cfg(test)] mod tests { use crate::tested; use bincode::config; }
        #[cfg(test)] use crate::imported;
        fn g() { ::tokio_postgres::connect() }
    "#;
    let names = Names::read(text, 1);
    let rooms: Vec<_> = names.rooms.iter().map(String::as_str).collect();
    assert_eq!(rooms, ["a", "c", "e", "g", "i", "k", "m", "q"]);
    assert!(names.crates.contains("rusqlite") && names.crates.contains("tokio_postgres"));
    assert!(!names.crates.contains("bincode"));
}

/// What a file names outside its tests.
#[derive(Default)]
pub struct Names {
    /// First parts of paths from this crate's root.
    pub rooms: BTreeSet<String>,
    /// First parts of paths, and what is named alone in a `use`.
    pub crates: BTreeSet<String>,
    /// Modules declared for tests only, in files of their own.
    pub test_modules: BTreeSet<String>,
}

impl Names {
    /// Reads a file whose module lies `depth` below the crate's root.
    pub fn read(text: &str, depth: usize) -> Self {
        let tokens: TokenStream = text.parse().unwrap();
        let mut names = Self::default();
        names.walk(tokens, depth);
        names
    }

    fn walk(&mut self, tokens: TokenStream, depth: usize) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at = self.skip_item(&tokens, at + 2);
                continue;
            }
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.walk(group.stream(), depth + in_module(&tokens[..at]))
                }
                TokenTree::Ident(ident) if !follows_path(&tokens[..at]) => {
                    self.path(&ident.to_string(), &tokens[at + 1..], depth);
                    let used = matches!(tokens[..at].last(), Some(TokenTree::Ident(word)) if word == "use");
                    if used || is_path(&tokens[at + 1..]) {
                        self.crates.insert(ident.to_string());
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Records the room that a path names, if it begins at the crate's root.
    fn path(&mut self, first: &str, rest: &[TokenTree], depth: usize) {
        let (mut first, mut rest, mut ups) = (first.to_owned(), rest, 0);
        while first == "super" && is_path(rest) {
            ups += 1;
            match rest.get(2) {
                Some(TokenTree::Ident(next)) if next == "super" => {
                    first = next.to_string();
                    rest = &rest[3..];
                }
                _ => break,
            }
        }
        let from_root = first == "crate" || first == "backstitch" || (ups > 0 && ups == depth);
        if !from_root || !is_path(rest) {
            return;
        }
        match rest.get(2) {
            Some(TokenTree::Ident(room)) => drop(self.rooms.insert(room.to_string())),
            Some(TokenTree::Group(group)) => {
                let mut at_start = true;
                for token in group.stream() {
                    match token {
                        TokenTree::Ident(room) if at_start => {
                            self.rooms.insert(room.to_string());
                            at_start = false;
                        }
                        TokenTree::Punct(punct) if punct.as_char() == ',' => at_start = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// The place after the item at `at`, which only tests compile.
    pub fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(_))) =
                        (tokens.get(at), tokens.get(at + 1))
                    {
                        self.test_modules.insert(name.to_string());
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                // A braced list of a `use` is followed by its semicolon.
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let more = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ';');
                    return at + usize::from(more);
                }
                _ => {}
            }
        }
        at
    }
}

/// `#[cfg(test)]`, also with `all(..)` around it.
pub fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else {
        return false;
    };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

/// 1 if these tokens end with `mod name`, whose body comes next.
pub fn in_module(before: &[TokenTree]) -> usize {
    match before {
        [.., TokenTree::Ident(word), TokenTree::Ident(_)] if word == "mod" => 1,
        _ => 0,
    }
}

pub fn is_path(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..] if a.as_char() == ':' && b.as_char() == ':')
}

/// True in the middle of a path: `x::` or `>::` comes before, not `::` alone.
pub fn follows_path(before: &[TokenTree]) -> bool {
    let [rest @ .., TokenTree::Punct(a), TokenTree::Punct(b)] = before else {
        return false;
    };
    a.as_char() == ':'
        && b.as_char() == ':'
        && match rest.last() {
            Some(TokenTree::Ident(word)) => word != "use",
            Some(TokenTree::Punct(punct)) => punct.as_char() == '>',
            _ => false,
        }
}
