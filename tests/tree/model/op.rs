//! Operations as proptest makes and shrinks them: what to do, and numbers that choose among what
//! there is then.

use proptest::prelude::*;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Thread,
    Run,
    Post,
    Edit,
    Repeat,
    State,
    Rewind,
    Begin,
    Btw,
    Restore,
    Activate,
    Rename,
    DeleteBranch,
    SetTag,
    DeleteTag,
    Fork,
    Implicit,
    Copy,
    Prune,
    DeleteThread,
    DeleteTree,
    Wrong,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: Kind,
    /// Which thread.
    pub thread: u16,
    pub a: u16,
    pub b: u16,
    pub c: u16,
    pub d: u16,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        10 => Just(Kind::Run),
        10 => Just(Kind::Post),
        5 => Just(Kind::Edit),
        3 => Just(Kind::Repeat),
        5 => Just(Kind::State),
        5 => Just(Kind::Rewind),
        4 => Just(Kind::Begin),
        2 => Just(Kind::Btw),
        2 => Just(Kind::Restore),
        4 => Just(Kind::Activate),
        3 => Just(Kind::Rename),
        3 => Just(Kind::DeleteBranch),
        4 => Just(Kind::SetTag),
        1 => Just(Kind::DeleteTag),
        4 => Just(Kind::Fork),
        3 => Just(Kind::Implicit),
        1 => Just(Kind::Copy),
        1 => Just(Kind::Prune),
        1 => Just(Kind::DeleteThread),
        1 => Just(Kind::DeleteTree),
        1 => Just(Kind::Thread),
        4 => Just(Kind::Wrong),
    ]
}

/// Cases of so many operations at most.
pub fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let numbers = (0..64_u16, 0..64_u16, 0..512_u16, 0..64_u16, 0..64_u16);
    let op = (kind(), numbers).prop_map(|(kind, (thread, a, b, c, d))| Op {
        kind,
        thread,
        a,
        b,
        c,
        d,
    });
    prop::collection::vec(op, most / 2..=most)
}
