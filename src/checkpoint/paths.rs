//! Paths of tasks as storages keep them. Nearly all begin alike, with a word of the engine's that stands for a
//! task of a superstep; it is stored as two characters. The order of paths stays.

use std::borrow::Cow;

/// What the path of a task that is no packet begins with.
const PULL: &str = "~__pregel_pull, ";
/// What is stored instead.
const SHORT: &str = "~>";
/// What comes before paths that begin like one of these themselves.
const ESCAPE: &str = "~<";

/// A path on its way in.
pub fn shortened(path: &str) -> Cow<'_, str> {
    if let Some(rest) = path.strip_prefix(PULL) {
        Cow::Owned([SHORT, rest].concat())
    } else if path.starts_with(SHORT) || path.starts_with(ESCAPE) {
        Cow::Owned([ESCAPE, path].concat())
    } else {
        Cow::Borrowed(path)
    }
}

/// A path on its way out.
pub fn whole(stored: &str) -> Cow<'_, str> {
    if let Some(rest) = stored.strip_prefix(SHORT) {
        Cow::Owned([PULL, rest].concat())
    } else if let Some(path) = stored.strip_prefix(ESCAPE) {
        Cow::Borrowed(path)
    } else {
        Cow::Borrowed(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_in_their_order() {
        let paths = [
            "",
            "~",
            "~__pregel_pull, a",
            "~__pregel_pull, b, node_error_handler, 0000000000",
            "~__pregel_push, 0000000000",
            "~__pregel_push, 0000000001, ~__pregel_pull, a, false",
        ];
        let stored = paths.map(shortened);
        assert!(stored.is_sorted());
        assert_eq!(stored[2], "~>a");
        for path in paths
            .into_iter()
            .chain(["~>", "~<", "~>~<a", "~__pregel_pull,", "a"])
        {
            assert_eq!(whole(&shortened(path)), path);
        }
    }

    #[test]
    fn whole_paths_of_earlier_versions_are_read() {
        assert_eq!(whole("~__pregel_pull, a"), "~__pregel_pull, a");
    }
}
