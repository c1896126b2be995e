//! Where a posted message goes. Nothing here does I/O.

use super::OnExisting;
use crate::{
    id::{BranchId, NodeId},
    time::Timestamp,
};

/// A place in a conversation: behind this message, or before the first one.
pub type Spot = Option<NodeId>;

/// The end of a branch.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The branch.
    pub branch: BranchId,
    /// Its last message.
    pub last: Spot,
    /// When it last moved.
    pub updated_at: Timestamp,
}

/// A message that the thread has under an id of the request, or in place of one.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// It.
    pub node: NodeId,
    /// The message before it.
    pub parent: Spot,
    /// It says the same as the one that was sent.
    pub same: bool,
    /// It was written in place of the message with that id.
    pub is_edit: bool,
    /// It is on the path of the branch that the request means.
    pub on_path: bool,
}

/// What is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// The place that the request names, if it names one.
    pub after: Option<Spot>,
    /// What known ids mean.
    pub on_existing: OnExisting,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the end of this branch.
    Append(BranchId),
    /// Into the state at the end of this branch, in place of what has its id.
    Replace(BranchId),
    /// To a new branch that begins behind this message.
    Branch(Spot),
    /// To a new branch that begins before this message.
    Edit(NodeId),
    /// Nowhere: the id is taken.
    Taken,
}

/// The message that a repeated request has stored already: same content, and the same place if
/// the request names one.
pub fn stored(known: &[Known], after: Option<Spot>) -> Option<NodeId> {
    let fits = |one: &&Known| one.same && after.is_none_or(|after| after == one.parent);
    let mut fitting = known.iter().filter(fits);
    let first = fitting.clone().next();
    fitting
        .find(|one| one.on_path)
        .or(first)
        .map(|one| one.node)
}

/// Where messages go of which the first one is `known` under its id. `main` is the end of the
/// branch that the request means: the one it names, else the active one; `others` are the ends of
/// the others, and are asked for only when a place is named.
pub fn choose(ask: Ask, known: &[Known], main: Line, others: &[Line]) -> Choice {
    let taken = || known.iter().filter(|one| !one.is_edit);
    if taken().next().is_some() {
        match ask.on_existing {
            OnExisting::Reject => return Choice::Taken,
            OnExisting::Replace => return Choice::Replace(main.branch),
            OnExisting::Branch => {}
        }
        // A place beside the message with that id is named, or none at all.
        let here = |one: &&Known| ask.after.is_none_or(|after| after == one.parent);
        let edited = taken().filter(here);
        let old = edited.clone().find(|one| one.on_path);
        if let Some(old) = old.or_else(|| edited.clone().next()) {
            return Choice::Edit(old.node);
        }
    }
    let Some(after) = ask.after else {
        return Choice::Append(main.branch);
    };
    if main.last == after {
        return Choice::Append(main.branch);
    }
    let ending = others.iter().filter(|line| line.last == after);
    match ending.max_by_key(|line| line.updated_at) {
        Some(line) => Choice::Append(line.branch),
        None => Choice::Branch(after),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn node(n: u128) -> NodeId {
        NodeId(Uuid::from_u128(n))
    }

    fn branch(n: u128) -> BranchId {
        BranchId(Uuid::from_u128(n))
    }

    fn line(n: u128, last: Option<u128>, second: i64) -> Line {
        Line {
            branch: branch(n),
            last: last.map(node),
            updated_at: Timestamp(second * 1_000_000),
        }
    }

    fn known(n: u128, parent: Option<u128>) -> Known {
        Known {
            node: node(n),
            parent: parent.map(node),
            same: false,
            is_edit: false,
            on_path: true,
        }
    }

    /// `main` ends at M4, two others end at M2 and one at M6.
    fn chosen(after: Option<Option<u128>>, on_existing: OnExisting, known: &[Known]) -> Choice {
        let others = [
            line(2, Some(2), 10),
            line(3, Some(2), 20),
            line(4, Some(6), 5),
        ];
        let ask = Ask {
            after: after.map(|spot| spot.map(node)),
            on_existing,
        };
        choose(ask, known, line(1, Some(4), 0), &others)
    }

    #[test]
    fn a_message_goes_where_its_parent_is_the_last_one_or_begins_a_branch() {
        use OnExisting::Branch;
        for (after, expected) in [
            (None, Choice::Append(branch(1))),
            (Some(Some(4)), Choice::Append(branch(1))),
            (Some(Some(6)), Choice::Append(branch(4))),
            // Of two candidates the one that moved last.
            (Some(Some(2)), Choice::Append(branch(3))),
            (Some(Some(3)), Choice::Branch(Some(node(3)))),
            (Some(None), Choice::Branch(None)),
        ] {
            assert_eq!(chosen(after, Branch, &[]), expected, "{after:?}");
        }
    }

    #[test]
    fn a_known_id_means_what_the_request_says() {
        let old = [known(2, Some(1))];
        for (after, how, expected) in [
            (None, OnExisting::Branch, Choice::Edit(node(2))),
            (Some(Some(1)), OnExisting::Branch, Choice::Edit(node(2))),
            // Another place is named: there it goes.
            (Some(Some(4)), OnExisting::Branch, Choice::Append(branch(1))),
            (
                Some(Some(3)),
                OnExisting::Branch,
                Choice::Branch(Some(node(3))),
            ),
            (None, OnExisting::Replace, Choice::Replace(branch(1))),
            (None, OnExisting::Reject, Choice::Taken),
        ] {
            assert_eq!(chosen(after, how, &old), expected, "{after:?} {how:?}");
        }
        assert_eq!(
            chosen(None, OnExisting::Branch, &[known(1, None)]),
            Choice::Edit(node(1)),
            "the first message too"
        );
    }

    #[test]
    fn of_twins_the_one_on_the_path_is_edited() {
        let aside = Known {
            on_path: false,
            ..known(8, Some(1))
        };
        let twins = [aside, known(2, Some(1))];
        assert_eq!(
            chosen(None, OnExisting::Branch, &twins),
            Choice::Edit(node(2))
        );
        assert_eq!(
            chosen(None, OnExisting::Branch, &[aside]),
            Choice::Edit(node(8))
        );
    }

    #[test]
    fn what_was_written_in_place_of_an_id_does_not_take_it() {
        let edit = Known {
            is_edit: true,
            ..known(7, Some(1))
        };
        assert_eq!(
            chosen(None, OnExisting::Reject, &[edit]),
            Choice::Append(branch(1))
        );
    }

    #[test]
    fn a_repeated_request_is_known_by_content_and_place() {
        let other = known(2, Some(1));
        let same = Known {
            same: true,
            on_path: false,
            ..known(7, Some(1))
        };
        assert_eq!(stored(&[other], None), None);
        assert_eq!(stored(&[other, same], None), Some(node(7)));
        assert_eq!(stored(&[same], Some(Some(node(1)))), Some(node(7)));
        assert_eq!(stored(&[same], Some(Some(node(2)))), None);
        assert_eq!(stored(&[same], Some(None)), None);
        let near = Known {
            on_path: true,
            ..same
        };
        let near = Known {
            node: node(9),
            ..near
        };
        assert_eq!(stored(&[same, near], None), Some(node(9)));
    }
}
