//! Which nodes were started, and how often.

use std::{collections::BTreeMap, path::Path};

/// How often each node was started, by the lines that they wrote.
pub fn counted(trace: &Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Nodes that started more often than they would have.
pub fn again(usual: &BTreeMap<String, usize>, found: &BTreeMap<String, usize>) -> Vec<String> {
    let more = found.iter().flat_map(|(node, count)| {
        let more = count.saturating_sub(usual.get(node).copied().unwrap_or(0));
        std::iter::repeat_n(node.clone(), more)
    });
    more.collect()
}

/// Nodes that started less often than they would have.
pub fn missing(usual: &BTreeMap<String, usize>, found: &BTreeMap<String, usize>) -> Vec<String> {
    again(found, usual)
}
