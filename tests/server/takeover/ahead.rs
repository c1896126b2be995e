//! Runs whose supersteps share transactions, and whose process dies at a point of the way of these to the storage.

use serde_json::{Value, json};
use test_support::{client::Client, on_both_storages, place::Place};

use super::crash::{Rig, Step};

on_both_storages!(supersteps_that_shared_a_transaction_are_all_stored_or_run_anew);

/// Supersteps of a run.
const MANY: usize = 40;
/// Those that may run twice: sixteen that had ended, and the one that was running.
const TWICE: usize = 17;

/// How a run ends: at its limit, or because its graph has done all that it had to do.
#[derive(Clone, Copy, Debug)]
enum End {
    Limit,
    Done,
}

impl End {
    fn step(self) -> Step {
        let (most, limit) = match self {
            Self::Limit => (Value::Null, MANY),
            Self::Done => (json!(MANY), 2 * MANY),
        };
        Step::run("fault")
            .input(json!({"how": "endless", "trace": "$TRACE", "most": most}))
            .with("config", json!({"recursion_limit": limit}))
            .with("durability", json!("async"))
    }

    fn status(self) -> &'static str {
        match self {
            Self::Limit => "error",
            Self::Done => "success",
        }
    }

    /// The process of a run has died of `fault`: another one ends the run, and nothing is missing or there twice.
    fn is_whole(self, rig: &Rig, client: &Client, thread: &str, fault: &str) {
        let context = format!("{self:?}, {fault}");
        let runs = rig.runs(thread);
        assert_eq!(runs.len(), 1, "{context}");
        assert_eq!(client.end_of(thread, &runs[0]), self.status(), "{context}");
        let traces = rig.traces(thread);
        assert_eq!(traces.len(), MANY, "{context}: {traces:?}");
        let again = traces.values().map(|times| times - 1).sum::<usize>();
        println!("{context}: {again} supersteps ran again");
        assert!(again <= TWICE, "{context}: {again} supersteps ran again");
        // Newest first: each is the child of the next one, and none is missing or there twice.
        let history = client.history(thread);
        let of = |state: &Value, key: &str| state[key]["checkpoint_id"].clone();
        let ids: Vec<_> = history.iter().map(|one| of(one, "checkpoint")).collect();
        let parents = history.iter().map(|one| of(one, "parent_checkpoint"));
        let parents: Vec<_> = parents.collect();
        assert_eq!(ids[1..], parents[..ids.len() - 1], "{context}");
        let steps = history.iter().map(|one| one["metadata"]["step"].as_i64());
        let expected = (-1..=MANY as i64).rev().map(Some);
        assert!(steps.eq(expected), "{context}");
        assert_eq!(rig.events(thread, "RunFinished"), 1, "{context}");
    }
}

fn supersteps_that_shared_a_transaction_are_all_stored_or_run_anew(place: &Place) {
    let rig = Rig::new(place);
    for (end, faults) in [
        (
            End::Limit,
            &[
                "engine::before_commit=abort@2",
                "engine::after_commit=abort@20",
                "engine::before_commit=abort@35",
                "runs::before_finish=abort",
            ][..],
        ),
        (
            End::Done,
            &[
                "runs::claimed=abort",
                "engine::after_commit=abort@5",
                "engine::before_commit=abort@42",
                // With the supersteps that are not stored yet.
                "runs::before_finish=abort",
            ],
        ),
    ] {
        for fault in faults {
            let thread = rig.thread("fault");
            rig.dies_of(&end.step(), &thread, fault);
            let client = rig.restart("");
            end.is_whole(&rig, &client, &thread, fault);
        }
    }
}

/// Whatever the transaction stores: what a process stores when it begins, the run, its supersteps, its end, what is derived
/// of them, or something else.
#[test]
fn a_run_is_whole_in_whichever_transaction_of_sqlite_its_process_dies() {
    let place = Place::sqlite();
    let rig = Rig::new(&place);
    let (mut died, mut hits) = (0, 1..);
    loop {
        let thread = rig.thread("fault");
        let fault = format!("sqlite::before_commit=abort@{}", hits.next().unwrap());
        if !rig.may_die_of(&End::Done.step(), &thread, &fault) {
            break;
        }
        died += 1;
        let client = rig.restart("");
        if rig.runs(&thread).is_empty() {
            // Nobody was told that it was created.
            rig.performs(&End::Done.step(), &thread);
        }
        End::Done.is_whole(&rig, &client, &thread, &fault);
    }
    println!("the process died in {died} transactions");
    assert!(died > 3, "{died}");
}

#[test]
fn a_run_whose_process_dies_before_its_creation_is_written_does_not_exist() {
    let place = Place::postgres();
    let rig = Rig::new(&place);
    let thread = rig.thread("fault");
    rig.dies_of(&End::Done.step(), &thread, "creations::group=abort");
    let client = rig.restart("");
    assert_eq!(rig.runs(&thread), [""; 0]);
    let row = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(row["status"], "idle");
    rig.performs(&End::Done.step(), &thread);
    End::Done.is_whole(&rig, &client, &thread, "none");
}

#[test]
fn a_stateless_run_whose_process_dies_right_after_its_end_leaves_nothing() {
    let place = Place::postgres();
    let rig = Rig::new(&place);
    let gate = rig.folder().join("gate");
    let client = rig.restart("runs::gone=abort");
    let input = json!({"gate": gate, "trace": rig.folder().join("trace")});
    let run = client.post("/runs", &json!({"assistant_id": "pair", "input": input}));
    let run = run.json();
    let of = |key: &str| run[key].as_str().unwrap().to_owned();
    let (thread, run) = (of("thread_id"), of("run_id"));
    std::fs::write(&gate, "").unwrap();
    rig.has_died();
    let client = rig.restart("");
    for path in [
        format!("/threads/{thread}"),
        format!("/threads/{thread}/runs/{run}"),
        format!("/threads/{thread}/events"),
    ] {
        assert_eq!(client.get(&path).status, 404, "{path}");
    }
    let ran = std::fs::read_to_string(rig.folder().join("trace")).unwrap();
    assert_eq!(ran, "quick\n");
}
