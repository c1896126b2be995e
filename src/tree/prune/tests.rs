//! Tests of the plan of which checkpoints are removed.

use uuid::Uuid;

use super::*;

fn id(number: u128) -> CheckpointId {
    CheckpointId(Uuid::from_u128(number))
}

fn branch(number: u128) -> BranchId {
    BranchId(Uuid::from_u128(number))
}

/// Numbers of a row, its parent and its branch, and whether something needs it.
fn rows(rows: &[(u128, u128, u128, bool)]) -> Vec<PruneCandidate> {
    rows.iter()
        .map(|(own, parent, by, kept)| PruneCandidate {
            id: id(*own),
            parent: (*parent > 0).then(|| id(*parent)),
            branch: branch(*by),
            retained: *kept,
            input: false,
            inherits: false,
        })
        .collect()
}

fn state(root: u128, ns: &str, by: u128) -> SubgraphState {
    SubgraphState {
        root: id(root),
        ns: ns.into(),
        branch: branch(by),
    }
}

fn removed(plan: &PrunePlan) -> Vec<u128> {
    plan.removed.iter().map(|id| id.0.as_u128()).collect()
}

fn moved(plan: &PrunePlan) -> Vec<(u128, u128)> {
    plan.reparented
        .iter()
        .map(|(id, above)| (id.0.as_u128(), above.map_or(0, |above| above.0.as_u128())))
        .collect()
}

#[test]
fn pins_stay_and_follow_the_nearest_one_above() {
    let rows = rows(&[
        (1, 0, 1, false),
        (2, 1, 1, true),
        (3, 2, 1, false),
        (4, 3, 1, false),
        (5, 4, 1, true),
        (6, 4, 2, true),
        (7, 5, 1, true),
    ]);
    let plan = plan(&rows, &[]);
    assert_eq!(removed(&plan), [1, 3, 4]);
    assert_eq!(moved(&plan), [(2, 0), (5, 2), (6, 2)]);
}

#[test]
fn the_bare_input_above_a_pin_stays() {
    let mut rows = rows(&[
        (1, 0, 1, false),
        (2, 1, 1, false),
        (3, 2, 1, false),
        (4, 3, 1, true),
        (5, 4, 1, false),
    ]);
    for at in [1, 2, 4] {
        rows[at].input = true;
    }
    let plan = plan(&rows, &[]);
    assert_eq!(removed(&plan), [1, 5]);
    assert_eq!(moved(&plan), [(2, 0)]);
}

#[test]
fn what_is_inherited_stays() {
    let rows = rows(&[(10, 3, 1, false), (11, 10, 1, true)]);
    let plan = plan(&rows, &[]);
    assert_eq!(removed(&plan), [10]);
    assert_eq!(moved(&plan), [(11, 3)]);
}

#[test]
fn nothing_goes_where_everything_is_pinned() {
    let rows = rows(&[(1, 0, 1, true), (2, 1, 1, true)]);
    assert_eq!(plan(&rows, &[]), PrunePlan::default());
}

#[test]
fn the_newest_lasting_state_of_a_graph_inside_stays() {
    let rows = rows(&[
        (1, 0, 1, false),
        (2, 1, 1, false),
        (3, 2, 1, false),
        (4, 3, 1, true),
    ]);
    let inner = [
        state(1, "child", 1),
        state(2, "child", 1),
        state(3, "child:5f", 1),
        state(1, "other", 1),
    ];
    let plan = plan(&rows, &inner);
    assert_eq!(removed(&plan), [3]);
    assert_eq!(moved(&plan), [(4, 2)]);
}

#[test]
fn a_state_of_another_branch_does_not_end_the_search() {
    // 3 is the first of branch 2, made at 2, under which branch 1 went on.
    let rows = rows(&[
        (1, 0, 1, false),
        (2, 1, 1, false),
        (3, 2, 2, false),
        (4, 3, 2, true),
    ]);
    let inner = [state(2, "child", 1), state(1, "child", 1)];
    let plan = plan(&rows, &inner);
    assert_eq!(removed(&plan), [3]);
    assert_eq!(moved(&plan), [(4, 2)]);
}

#[test]
fn the_first_one_that_follows_an_inherited_one_stays_on_the_path_of_another() {
    let mut rows = rows(&[
        (10, 3, 1, false),
        (11, 10, 1, false),
        (12, 11, 1, true),
        // What nothing needs stays no longer for that.
        (13, 4, 2, false),
        (14, 13, 2, false),
        // Where the thread begins.
        (15, 9, 3, false),
        (16, 15, 3, true),
    ]);
    for row in &mut rows {
        row.inherits = row.parent.is_some_and(|parent| parent < id(9));
    }
    let plan = plan(&rows, &[]);
    assert_eq!(removed(&plan), [11, 13, 14, 15]);
    assert_eq!(moved(&plan), [(12, 10), (16, 9)]);
}
