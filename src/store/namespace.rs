//! Namespaces of items: which are allowed, and ranges of them in their order.

use std::sync::Arc;

/// Labels from the widest to the narrowest.
pub type Namespace = Vec<String>;

/// Most labels of a namespace.
pub const LABELS_MAX: usize = 64;
/// Most bytes of a namespace and a key together, so that they fit an entry of an index.
pub const NAME_BYTES_MAX: usize = 1536;
/// The first label of namespaces that LangGraph's server reserves for itself.
const RESERVED: &str = "langgraph";
/// The owner of items that all principals have in common.
pub const SHARED: &str = "";

/// Why a namespace is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has no labels.
    #[error("a namespace needs at least one label")]
    Empty,
    /// A label is empty.
    #[error("a label of a namespace cannot be empty")]
    EmptyLabel,
    /// A label contains the character that separates labels in LangGraph's addresses.
    #[error("a label of a namespace cannot hold a period: {0:?}")]
    Period(String),
    /// Its first label is reserved.
    #[error("the first label of a namespace cannot be {RESERVED:?}")]
    Reserved(Namespace),
    /// It has more labels than are allowed.
    #[error("a namespace has at most {LABELS_MAX} labels, not {0}")]
    TooManyLabels(usize),
    /// It is too long, with the key in it.
    #[error("a namespace and a key have at most {NAME_BYTES_MAX} bytes together, not {0}")]
    TooLong(usize),
}

/// Checks the labels of a namespace or of a prefix; no labels at all are a prefix of everything.
///
/// # Errors
/// One of its labels is not allowed (LangGraph's rules), or there are too many.
pub fn check_labels(labels: &[String]) -> Result<(), Refused> {
    if labels.len() > LABELS_MAX {
        return Err(Refused::TooManyLabels(labels.len()));
    }
    for label in labels {
        if label.is_empty() {
            return Err(Refused::EmptyLabel);
        }
        if label.contains('.') {
            return Err(Refused::Period(label.clone()));
        }
    }
    check_size(labels, "")
}

/// Checks where an item is or may be.
///
/// # Errors
/// The namespace is empty, or one of its labels is not allowed, or the whole is too long.
pub fn check(namespace: &[String], key: &str) -> Result<(), Refused> {
    if namespace.is_empty() {
        return Err(Refused::Empty);
    }
    check_labels(namespace)?;
    check_size(namespace, key)
}

/// Checks where an item is to be written.
///
/// # Errors
/// As [`check`], or the first label is reserved.
pub fn check_new(namespace: &[String], key: &str) -> Result<(), Refused> {
    check(namespace, key)?;
    if namespace.first().is_some_and(|label| label == RESERVED) {
        return Err(Refused::Reserved(namespace.to_vec()));
    }
    Ok(())
}

fn check_size(labels: &[String], key: &str) -> Result<(), Refused> {
    // Control characters may take two bytes where they are stored.
    let stored = |text: &str| text.len() + text.bytes().filter(|byte| *byte < 0x20).count();
    let bytes = labels.iter().map(|label| stored(label)).sum::<usize>() + stored(key);
    if bytes > NAME_BYTES_MAX {
        return Err(Refused::TooLong(bytes));
    }
    Ok(())
}

/// A position in the order of namespaces, in which one comes right before those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Right before a namespace and all below it.
    Before(Namespace),
    /// Right behind a namespace and all below it; behind the empty one nothing follows.
    Behind(Namespace),
}

/// Neighbouring namespaces of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The owner.
    pub owner: Arc<str>,
    /// Where it begins.
    pub from: Bound,
    /// Where it ends.
    pub to: Bound,
}

/// Whose items a namespace has, for `owner`: below one of the `shared` prefixes everybody's.
pub fn owner_of(shared: &[Namespace], owner: &Arc<str>, namespace: &[String]) -> Arc<str> {
    if shared.iter().any(|prefix| namespace.starts_with(prefix)) {
        SHARED.into()
    } else {
        owner.clone()
    }
}

/// The ranges that hold what `owner` sees below a prefix, in order. `shared` is sorted, and none
/// of it is below another.
pub fn ranges(shared: &[Namespace], owner: &Arc<str>, prefix: &[String]) -> Vec<Range> {
    let all = (
        Bound::Before(prefix.to_vec()),
        Bound::Behind(prefix.to_vec()),
    );
    let (mut from, end) = all;
    if shared.iter().any(|shared| prefix.starts_with(shared)) {
        let owner = SHARED.into();
        return vec![Range {
            owner,
            from,
            to: end,
        }];
    }
    let mut ranges = Vec::new();
    for inner in shared.iter().filter(|shared| shared.starts_with(prefix)) {
        let (before, behind) = (Bound::Before(inner.clone()), Bound::Behind(inner.clone()));
        ranges.push(Range {
            owner: owner.clone(),
            from,
            to: before.clone(),
        });
        ranges.push(Range {
            owner: SHARED.into(),
            from: before,
            to: behind.clone(),
        });
        from = behind;
    }
    ranges.push(Range {
        owner: owner.clone(),
        from,
        to: end,
    });
    ranges
}

/// Prefixes as [`ranges`] needs them: sorted, none of them below another.
pub fn outermost(mut prefixes: Vec<Namespace>) -> Vec<Namespace> {
    prefixes.sort();
    let mut found: Vec<Namespace> = Vec::new();
    for prefix in prefixes {
        if found.last().is_none_or(|last| !prefix.starts_with(last)) {
            found.push(prefix);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Namespace {
        let labels = text.split('/').filter(|label| !label.is_empty());
        labels.map(str::to_owned).collect()
    }

    #[test]
    fn a_namespace_needs_labels_without_periods() {
        let checked = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            check(&labels, "k")
        };
        assert_eq!(checked(&["users", "u 1", "\0"]), Ok(()));
        assert_eq!(checked(&[]), Err(Refused::Empty));
        assert_eq!(checked(&["users", ""]), Err(Refused::EmptyLabel));
        assert_eq!(checked(&["a.b"]), Err(Refused::Period("a.b".to_owned())));
        assert_eq!(checked(&["a"; 64]), Ok(()));
        assert_eq!(checked(&["a"; 65]), Err(Refused::TooManyLabels(65)));
        assert_eq!(checked(&["a".repeat(1535).as_str()]), Ok(()));
        let long = "\0".repeat(768);
        assert_eq!(checked(&[long.as_str()]), Err(Refused::TooLong(1537)));
    }

    #[test]
    fn only_what_is_written_needs_an_unreserved_root() {
        assert_eq!(check(&labels("langgraph"), ""), Ok(()));
        assert_eq!(
            check_new(&labels("langgraph"), ""),
            Err(Refused::Reserved(labels("langgraph")))
        );
        assert_eq!(check_new(&labels("a/langgraph"), ""), Ok(()));
    }

    #[test]
    fn shared_prefixes_are_cut_out_of_what_a_principal_owns() {
        let shared = outermost(vec![labels("b/x/y"), labels("c"), labels("b/x")]);
        assert_eq!(shared, [labels("b/x"), labels("c")]);
        let ann: Arc<str> = "ann".into();
        let cut = |prefix: &str| -> Vec<(String, Bound, Bound)> {
            let ranges = ranges(&shared, &ann, &labels(prefix)).into_iter();
            ranges
                .map(|range| (range.owner.to_string(), range.from, range.to))
                .collect()
        };
        let before = |text: &str| Bound::Before(labels(text));
        let behind = |text: &str| Bound::Behind(labels(text));
        let own = |from, to| ("ann".to_owned(), from, to);
        let common = |from, to| (String::new(), from, to);
        assert_eq!(
            cut(""),
            [
                own(before(""), before("b/x")),
                common(before("b/x"), behind("b/x")),
                own(behind("b/x"), before("c")),
                common(before("c"), behind("c")),
                own(behind("c"), behind("")),
            ]
        );
        assert_eq!(cut("c/deep"), [common(before("c/deep"), behind("c/deep"))]);
        assert_eq!(cut("a"), [own(before("a"), behind("a"))]);
        assert_eq!(&*owner_of(&shared, &ann, &labels("b/x/z")), SHARED);
        assert_eq!(&*owner_of(&shared, &ann, &labels("b")), "ann");
    }
}
