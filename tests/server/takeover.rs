//! Runs whose process dies, at every point where that can make a difference: another process takes
//! them over, and nobody can tell afterwards.

mod ahead;
mod crash;
mod one_request;
mod saved;
mod traces;

use crash::{Rig, Script, Step};
use serde_json::json;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::talk::until;

/// Makes tests of every named function `fn(&Place, durability)`, one per storage: in `sync` and, beside it, in `async`,
/// since they wait most of the time.
macro_rules! in_sync_and_async {
    ($($name:ident),+ $(,)?) => {
        mod in_sync_and_async {
            $(fn $name(place: &test_support::place::Place) {
                let other = place.another();
                std::thread::scope(|scope| {
                    let beside = scope.spawn(|| super::$name(&other, "async"));
                    super::$name(place, "sync");
                    beside.join().unwrap();
                });
            })+
            test_support::on_both_storages!($($name),+);
        }
    };
}

in_sync_and_async!(
    answers_are_given_once,
    breakpoints_hold,
    breakpoints_of_a_graph_inside_hold,
    an_answer_that_led_out_of_a_graph_inside_is_not_lost,
    tasks_that_share_a_graph_inside_each_run_it_once,
    the_limit_of_supersteps_counts_what_was_run_before,
    the_limit_of_supersteps_does_not_count_what_takes_a_stored_input,
    a_run_from_an_old_checkpoint_opens_one_branch,
    a_late_answer_is_given_on_one_branch,
);

on_both_storages!(
    what_is_stored_at_the_end_is_all_or_nothing,
    a_message_is_answered_once,
    a_run_that_kills_three_processes_ends_as_error,
    a_stateless_run_ends_with_its_thread,
);

/// Two journeys on one thread: the second one finds the state that the graph inside has kept.
fn journeys(durability: &str) -> Script {
    let travel = Step::run("journey").input(json!({"trace": "$TRACE"}));
    let answer = |text: &str| Step::run("journey").resume(json!(text));
    Script::new(durability).steps([
        travel.clone(),
        answer("Ada"),
        answer("nothing"),
        answer("tea"),
        travel,
        answer("Bob"),
        answer("a book"),
        answer("coffee"),
    ])
}

fn answers_are_given_once(place: &Place, durability: &str) {
    Rig::new(place).exactly(&journeys(durability));
}

fn breakpoints_hold(place: &Place, durability: &str) {
    let go_on = || Step::run("journey");
    let script = Script::new(durability).steps([
        go_on()
            .input(json!({"trace": "$TRACE"}))
            .with("interrupt_after", json!(["by_land"])),
        go_on().with("interrupt_before", json!(["stay"])),
        go_on()
            .resume(json!("Ada"))
            .with("interrupt_after", json!(["customs"])),
        go_on()
            .resume(json!("nothing"))
            .with("interrupt_after", json!(["customs"])),
        go_on().with("interrupt_before", json!(["arrive"])),
        go_on()
            .resume(json!("tea"))
            .with("interrupt_before", json!(["arrive"])),
        go_on(),
    ]);
    Rig::new(place).exactly(&script);
}

fn breakpoints_of_a_graph_inside_hold(place: &Place, durability: &str) {
    let go_on = || Step::run("stopover");
    let script = Script::new(durability).steps([
        go_on().input(json!({"trace": "$TRACE"})),
        go_on(),
        go_on().resume(json!("tea")),
        go_on(),
    ]);
    Rig::new(place).exactly(&script);
}

fn an_answer_that_led_out_of_a_graph_inside_is_not_lost(place: &Place, durability: &str) {
    let answer = |text: &str| Step::run("border").resume(json!(text));
    let script = Script::new(durability).steps([
        Step::run("border").input(json!({"trace": "$TRACE"})),
        answer("a passport"),
        answer("Ada"),
        answer("nothing"),
    ]);
    Rig::new(place).exactly(&script);
}

fn tasks_that_share_a_graph_inside_each_run_it_once(place: &Place, durability: &str) {
    let invite = || Step::run("inn").input(json!({"trace": "$TRACE"}));
    Rig::new(place).exactly(&Script::new(durability).steps([invite(), invite()]));
}

fn the_limit_of_supersteps_counts_what_was_run_before(place: &Place, durability: &str) {
    let endless = Step::run("fault")
        .input(json!({"how": "endless"}))
        .with("config", json!({"recursion_limit": 5}));
    Rig::new(place).check(&Script::new(durability).steps([endless.clone(), endless]));
}

fn the_limit_of_supersteps_does_not_count_what_takes_a_stored_input(
    place: &Place,
    durability: &str,
) {
    let rig = Rig::new(place);
    let step = Step::run("fault")
        .with("config", json!({"recursion_limit": 5}))
        .with("durability", json!(durability));
    let waiting = || {
        let thread = rig.thread("fault");
        let update = json!({"values": {"how": "endless"}, "as_node": "__input__"});
        let client = rig.restart("");
        let answer = client.post(&format!("/threads/{thread}/state"), &update);
        assert_eq!(answer.status, 200, "{}", answer.text());
        thread
    };
    let left = |thread: &str| {
        let client = rig.restart("");
        let run = rig.runs(thread).remove(0);
        assert_eq!(client.end_of(thread, &run), "error");
        client.history(thread).len()
    };
    let thread = waiting();
    rig.performs(&step, &thread);
    let whole = left(&thread);
    assert_eq!(whole, 7, "the input, its superstep and five of nodes");
    for hit in [2, 4] {
        let thread = waiting();
        rig.dies_of(
            &step,
            &thread,
            &format!("engine::before_commit=abort@{hit}"),
        );
        assert_eq!(left(&thread), whole, "died at commit {hit}");
    }
}

fn a_run_from_an_old_checkpoint_opens_one_branch(place: &Place, durability: &str) {
    let say = |text: &str| {
        let message = json!({"role": "user", "content": text, "id": text});
        Step::run("talk").input(json!({"messages": [message]}))
    };
    let script = Script::new(durability).steps([
        say("one"),
        say("two"),
        say("three").at_end_of(0),
        Step::run("talk").at_end_of(1),
    ]);
    Rig::new(place).check(&script);
}

fn a_late_answer_is_given_on_one_branch(place: &Place, durability: &str) {
    let answer = |text: &str| Step::run("journey").resume(json!(text));
    let script = Script::new(durability).steps([
        Step::run("journey").input(json!({"trace": "$TRACE"})),
        answer("Ada"),
        answer("nothing"),
        answer("Bob").at_end_of(0),
        answer("a book"),
    ]);
    Rig::new(place).exactly(&script);
}

fn what_is_stored_at_the_end_is_all_or_nothing(place: &Place) {
    Rig::new(place).check(&journeys("exit"));
}

fn a_message_is_answered_once(place: &Place) {
    let send = |text: &str| Step::send_message(text);
    Rig::new(place).check(&Script::new("async").steps([send("hello"), send("again")]));
}

fn a_run_that_kills_three_processes_ends_as_error(place: &Place) {
    let rig = Rig::new(place);
    let step = Step::run("talk").input(json!({"messages": [{"role": "user", "content": "x"}]}));
    let thread = rig.thread("talk");
    rig.dies_of(&step, &thread, "engine::before_commit=abort@3");
    for _ in 0..2 {
        rig.dies_again("engine::before_commit=abort");
    }
    let client = rig.restart("");
    let run = rig.runs(&thread).remove(0);
    assert_eq!(client.end_of(&thread, &run), "error");
    let row = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(row["status"], "error");
    assert_eq!(row["error"]["error"], "WorkerLost");
    let text = row["error"]["message"].as_str().unwrap();
    assert!(text.contains("3 times"), "{text}");
    // Nothing is left in the way of the next one.
    let values = client.run(&thread, &json!({"assistant_id": "talk"}));
    assert_eq!(values["messages"].as_array().unwrap().len(), 2);
    assert_eq!(rig.events(&thread, "RunStarted"), 4);
    assert_eq!(rig.events(&thread, "RunFinished"), 2);
}

fn a_stateless_run_ends_with_its_thread(place: &Place) {
    let rig = Rig::new(place);
    let gate = rig.folder().join("gate");
    let input = json!({"gate": gate, "trace": rig.folder().join("trace")});
    let body = json!({"assistant_id": "pair", "input": input});
    let client = rig.restart("");
    let run = client.post("/runs", &body).json();
    let (thread, run) = (
        run["thread_id"].as_str().unwrap(),
        run["run_id"].as_str().unwrap(),
    );
    let client = rig.restart("");
    std::fs::write(gate, "").unwrap();
    until("the thread is gone", || {
        client.get(&format!("/threads/{thread}")).status == 404
    });
    let answer = client.get(&format!("/threads/{thread}/runs/{run}"));
    assert_eq!(answer.status, 404, "{}", answer.text());
}
