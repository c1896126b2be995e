//! What mdBook needs to build the guide and does not check, or fails on: its list of pages, what pages include, where
//! links lead. And the operations that the guide names, beside the server's own list of them.

use std::collections::HashSet;
use std::path::Path;

use super::{docs, pages};

/// Every operation of the server, which its own tests compare with the routes.
const OPERATIONS: &str = include_str!("../../routes.txt");

/// A page with what it includes from other files.
fn whole(name: &str, page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{#") {
        out.push_str(before);
        let (command, after) = after.split_once("}}").unwrap();
        let target = command.strip_prefix("include ");
        let target = target.unwrap_or_else(|| panic!("{name}: {command}"));
        let (file, anchor) = target.split_once(':').unwrap_or((target, ""));
        let text = std::fs::read_to_string(docs().join(file));
        let text = text.unwrap_or_else(|error| panic!("{name} includes {file}: {error}"));
        out.push_str(
            part(&text, anchor).unwrap_or_else(|| panic!("{name}: no {anchor} in {file}")),
        );
        rest = after;
    }
    out + rest
}

/// The part of a text between the marks of an anchor; all of it without one.
fn part<'a>(text: &'a str, anchor: &str) -> Option<&'a str> {
    if anchor.is_empty() {
        return Some(text);
    }
    let (_, rest) = text.split_once(&format!("ANCHOR: {anchor} -->"))?;
    Some(rest.split_once(&format!("<!-- ANCHOR_END: {anchor}"))?.0)
}

/// The lines of a page outside its blocks of code.
fn prose<'a>(name: &str, page: &'a str) -> Vec<&'a str> {
    let mut inside = false;
    let mut lines = vec![];
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            lines.push(line);
        }
    }
    assert!(!inside, "{name}: a block of code has no end");
    lines
}

/// The texts in backquotes.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// What the headings of a page are called in links.
fn headings(name: &str, page: &str) -> HashSet<String> {
    let titles = prose(name, page)
        .into_iter()
        .filter(|line| line.starts_with('#'));
    let fits = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let id = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(fits)
            .collect::<String>()
            .replace(' ', "-")
    };
    titles.map(id).collect()
}

#[test]
fn the_list_of_pages_is_one_that_mdbook_reads() {
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let mut listed = HashSet::new();
    let mut numbered = false;
    for line in summary.lines().filter(|line| !line.is_empty()) {
        let entry = line.strip_prefix("- ");
        assert!(
            entry.is_some() || !numbered || line.starts_with('#'),
            "a page without a number comes before or after the others: {line}"
        );
        numbered |= entry.is_some();
        let Some(link) = entry.unwrap_or(line).strip_prefix('[') else {
            assert!(line.starts_with("# "), "{line}");
            continue;
        };
        let (_, target) = link.split_once("](").unwrap();
        let target = target.strip_suffix(')').unwrap();
        assert!(docs().join(target).is_file(), "{target}");
        assert!(listed.insert(target.to_owned()), "{target} is listed twice");
    }
    assert!(listed.len() > 10);
}

#[test]
fn links_lead_to_pages_and_headings_that_are_there() {
    let pages: Vec<(String, String)> = pages()
        .into_iter()
        .map(|(name, page)| (name.clone(), whole(&name, &page)))
        .collect();
    for (name, page) in &pages {
        for line in prose(name, page) {
            for link in line.split("](").skip(1) {
                let target = link.split(')').next().unwrap();
                if target.starts_with("https://") {
                    continue;
                }
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = if file.is_empty() { name.as_str() } else { file };
                assert!(docs().join(file).is_file(), "{name} leads to {target}");
                let linked = pages.iter().find(|(name, _)| name == file);
                // Other files than pages are copied into the book.
                assert!(
                    linked.is_some() || Path::new(file).extension() != Some("md".as_ref()),
                    "{name} leads to {target}, which is no page"
                );
                assert!(
                    heading.is_empty()
                        || linked
                            .is_some_and(|(name, page)| headings(name, page).contains(heading)),
                    "{name} leads to {target}, and there is no such heading"
                );
            }
        }
    }
}

/// Whether a path is one of a route: a part in braces stands for any.
fn is_route(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    loop {
        match (route.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(_)) if part.starts_with('{') => {}
            (Some(part), Some(other)) if part == other => {}
            _ => return false,
        }
    }
}

#[test]
fn operations_that_the_guide_names_are_there() {
    let known: Vec<(&str, &str)> = OPERATIONS
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        })
        .collect();
    let mut of_http = 0;
    for (name, page) in pages() {
        let is_table = |line: &str| name == "http.md" && line.starts_with("| ");
        for line in prose(&name, &page) {
            for span in code(line) {
                let operation = span.split_once(' ').filter(|(method, path)| {
                    path.starts_with('/') && method.bytes().all(|byte| byte.is_ascii_uppercase())
                });
                let Some((method, path)) = operation else {
                    assert!(!is_table(line), "{name}: `{span}` is no operation");
                    continue;
                };
                let path = path.split('?').next().unwrap();
                let mut routes = known.iter().filter(|(other, _)| *other == method);
                assert!(
                    routes.any(|(_, route)| is_route(route, path)),
                    "{name}: there is no `{span}`"
                );
                of_http += usize::from(is_table(line));
            }
        }
    }
    assert!(of_http > 30, "{of_http} operations in the table");
}
