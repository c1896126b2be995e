//! Chooses where a posted message goes. Nothing here does I/O.

use super::OnExisting;
use crate::{
    id::{BranchId, NodeId},
    time::Timestamp,
};

/// The message that another one follows; `None` before the first one.
pub type Predecessor = Option<NodeId>;

/// The end of a branch.
#[derive(Clone, Copy, Debug)]
pub struct BranchEnd {
    /// The branch.
    pub branch: BranchId,
    /// Its last message.
    pub last: Predecessor,
    /// When the branch last changed.
    pub updated_at: Timestamp,
}

/// A message that the thread has under an id of the request, or that replaced one with that id.
#[derive(Clone, Copy, Debug)]
pub struct ExistingMessage {
    /// Its node.
    pub node: NodeId,
    /// The message before it.
    pub parent: Predecessor,
    /// Its content equals that of the submitted message.
    pub content_equal: bool,
    /// It replaced the message with that id.
    pub is_edit: bool,
    /// It is on the path of the branch that the request is for.
    pub on_path: bool,
}

/// Where a request wants its messages to go.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacementRequest {
    /// The message that they must follow, if the request names one.
    pub after: Option<Predecessor>,
    /// What ids that the thread has already mean.
    pub on_existing: OnExisting,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePlacement {
    /// To the end of this branch.
    Append(BranchId),
    /// Into the state at the end of this branch, where it replaces the message with its id.
    Replace(BranchId),
    /// To a new branch that begins behind this message.
    Branch(Predecessor),
    /// To a new branch that begins before this message.
    Edit(NodeId),
    /// Nowhere, because the thread has a message with its id.
    IdTaken,
}

/// The message that an earlier attempt of the request has stored: it has equal content, and the
/// predecessor that the request names, if it names one.
pub fn find_duplicate(known: &[ExistingMessage], after: Option<Predecessor>) -> Option<NodeId> {
    let fits =
        |one: &&ExistingMessage| one.content_equal && after.is_none_or(|after| after == one.parent);
    let mut fitting = known.iter().filter(fits);
    let first = fitting.clone().next();
    fitting
        .find(|one| one.on_path)
        .or(first)
        .map(|one| one.node)
}

/// Chooses where messages go. `known` is what the thread has for the id of the first one. `main` is
/// the end of the branch that the request is for: the one it names, or the active one. `others` are
/// the ends of the other branches; they may be left out if the request names no predecessor.
pub fn choose_placement(
    request: PlacementRequest,
    known: &[ExistingMessage],
    main: BranchEnd,
    others: &[BranchEnd],
) -> MessagePlacement {
    let with_id = || known.iter().filter(|one| !one.is_edit);
    if with_id().next().is_some() {
        match request.on_existing {
            OnExisting::Reject => return MessagePlacement::IdTaken,
            OnExisting::Replace => return MessagePlacement::Replace(main.branch),
            OnExisting::Branch => {}
        }
        // The request names no predecessor, or the one of the message with that id.
        let fits = |one: &&ExistingMessage| request.after.is_none_or(|after| after == one.parent);
        let edited = with_id().filter(fits);
        let old = edited.clone().find(|one| one.on_path);
        if let Some(old) = old.or_else(|| edited.clone().next()) {
            return MessagePlacement::Edit(old.node);
        }
    }
    let Some(after) = request.after else {
        return MessagePlacement::Append(main.branch);
    };
    if main.last == after {
        return MessagePlacement::Append(main.branch);
    }
    let ending = others.iter().filter(|line| line.last == after);
    match ending.max_by_key(|line| line.updated_at) {
        Some(line) => MessagePlacement::Append(line.branch),
        None => MessagePlacement::Branch(after),
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

    fn line(n: u128, last: Option<u128>, second: i64) -> BranchEnd {
        BranchEnd {
            branch: branch(n),
            last: last.map(node),
            updated_at: Timestamp(second * 1_000_000),
        }
    }

    fn known(n: u128, parent: Option<u128>) -> ExistingMessage {
        ExistingMessage {
            node: node(n),
            parent: parent.map(node),
            content_equal: false,
            is_edit: false,
            on_path: true,
        }
    }

    /// `main` ends at M4, two others end at M2 and one at M6.
    fn chosen(
        after: Option<Option<u128>>,
        on_existing: OnExisting,
        known: &[ExistingMessage],
    ) -> MessagePlacement {
        let others = [
            line(2, Some(2), 10),
            line(3, Some(2), 20),
            line(4, Some(6), 5),
        ];
        let request = PlacementRequest {
            after: after.map(|spot| spot.map(node)),
            on_existing,
        };
        choose_placement(request, known, line(1, Some(4), 0), &others)
    }

    #[test]
    fn a_message_goes_where_its_parent_is_the_last_one_or_begins_a_branch() {
        use OnExisting::Branch;
        for (after, expected) in [
            (None, MessagePlacement::Append(branch(1))),
            (Some(Some(4)), MessagePlacement::Append(branch(1))),
            (Some(Some(6)), MessagePlacement::Append(branch(4))),
            // Of two candidates the one that moved last.
            (Some(Some(2)), MessagePlacement::Append(branch(3))),
            (Some(Some(3)), MessagePlacement::Branch(Some(node(3)))),
            (Some(None), MessagePlacement::Branch(None)),
        ] {
            assert_eq!(chosen(after, Branch, &[]), expected, "{after:?}");
        }
    }

    #[test]
    fn a_known_id_means_what_the_request_says() {
        let old = [known(2, Some(1))];
        for (after, how, expected) in [
            (None, OnExisting::Branch, MessagePlacement::Edit(node(2))),
            (
                Some(Some(1)),
                OnExisting::Branch,
                MessagePlacement::Edit(node(2)),
            ),
            // The request names another predecessor.
            (
                Some(Some(4)),
                OnExisting::Branch,
                MessagePlacement::Append(branch(1)),
            ),
            (
                Some(Some(3)),
                OnExisting::Branch,
                MessagePlacement::Branch(Some(node(3))),
            ),
            (
                None,
                OnExisting::Replace,
                MessagePlacement::Replace(branch(1)),
            ),
            (None, OnExisting::Reject, MessagePlacement::IdTaken),
        ] {
            assert_eq!(chosen(after, how, &old), expected, "{after:?} {how:?}");
        }
        assert_eq!(
            chosen(None, OnExisting::Branch, &[known(1, None)]),
            MessagePlacement::Edit(node(1)),
            "the first message too"
        );
    }

    #[test]
    fn of_twins_the_one_on_the_path_is_edited() {
        let aside = ExistingMessage {
            on_path: false,
            ..known(8, Some(1))
        };
        let twins = [aside, known(2, Some(1))];
        assert_eq!(
            chosen(None, OnExisting::Branch, &twins),
            MessagePlacement::Edit(node(2))
        );
        assert_eq!(
            chosen(None, OnExisting::Branch, &[aside]),
            MessagePlacement::Edit(node(8))
        );
    }

    #[test]
    fn what_was_written_in_place_of_an_id_does_not_take_it() {
        let edit = ExistingMessage {
            is_edit: true,
            ..known(7, Some(1))
        };
        assert_eq!(
            chosen(None, OnExisting::Reject, &[edit]),
            MessagePlacement::Append(branch(1))
        );
    }

    #[test]
    fn a_repeated_request_is_known_by_content_and_place() {
        let other = known(2, Some(1));
        let same = ExistingMessage {
            content_equal: true,
            on_path: false,
            ..known(7, Some(1))
        };
        assert_eq!(find_duplicate(&[other], None), None);
        assert_eq!(find_duplicate(&[other, same], None), Some(node(7)));
        assert_eq!(find_duplicate(&[same], Some(Some(node(1)))), Some(node(7)));
        assert_eq!(find_duplicate(&[same], Some(Some(node(2)))), None);
        assert_eq!(find_duplicate(&[same], Some(None)), None);
        let near = ExistingMessage {
            on_path: true,
            ..same
        };
        let near = ExistingMessage {
            node: node(9),
            ..near
        };
        assert_eq!(find_duplicate(&[same, near], None), Some(node(9)));
    }
}
