//! Results of steps (`ctx.step`): with each durability they are stored where a run that goes on finds them.

use std::fs;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::rows;
use test_support::talk::{ok, with};

on_both_storages!(
    no_result_of_a_step_is_stored_without_its_checkpoint,
    a_run_that_asks_has_stored_the_results_of_its_steps,
);

const DURABILITIES: [&str; 3] = ["sync", "async", "exit"];

/// A run of a node that begins with a step.
fn run(how: &str, durability: &str, more: Value) -> Value {
    let mut input = json!({"how": how});
    let fields = more.as_object().unwrap().clone();
    input.as_object_mut().unwrap().extend(fields);
    json!({"assistant_id": "fault", "input": input, "durability": durability})
}

/// How many rows of results are stored, and how many of those at a checkpoint that is not.
fn results(place: &Place, server: &Server) -> [usize; 2] {
    let sql = "SELECT CAST(count(*) AS text), CAST(count(*) - count(c.checkpoint_id) AS text)
         FROM checkpoint_writes w
         LEFT JOIN checkpoints c
           ON c.tree_id = w.tree_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id";
    let counts = &rows(place, server, sql)[0];
    [0, 1].map(|at| counts[at].as_deref().unwrap().parse().unwrap())
}

fn no_result_of_a_step_is_stored_without_its_checkpoint(place: &Place) {
    for durability in DURABILITIES {
        let place = place.another();
        let server = place.start(Setup::example("faulty_server"));
        let client = Client::of(&server);
        let thread = client.thread();
        // The second one begins at a checkpoint that is stored.
        for times in 1..=2 {
            let state = client.run(&thread, &run("step", durability, json!({})));
            assert_eq!(state["done"].as_array().unwrap().len(), 2 * times);
        }
        let [all, lost] = results(&place, &server);
        println!("{durability}: {all} rows of results");
        assert_eq!(lost, 0, "{durability}: of {all}");
        // With the others the result of a step is there before the node goes on.
        assert_eq!(all == 0, durability == "exit", "{durability}: {all}");
    }
}

fn a_run_that_asks_has_stored_the_results_of_its_steps(place: &Place) {
    let (mut server, mut client) = serve_faults(place);
    let folder = tempfile::tempdir().unwrap();
    for durability in DURABILITIES {
        let trace = folder.path().join(durability);
        let thread = client.thread();
        let asking = run("step and ask", durability, json!({"trace": trace}));
        let state = client.run(&thread, &asking);
        assert!(state["__interrupt__"].is_array(), "{durability}: {state}");
        server.restart();
        client = Client::of(&server);
        let answer = json!({"assistant_id": "fault", "command": {"resume": "yes"}});
        let answer = with(answer, "durability", durability);
        // An answer that is taken back takes no step of the run before along.
        for _ in 0..2 {
            let state = client.run(&thread, &answer);
            assert_eq!(state["done"], json!(["good", "bad"]), "{durability}");
            let runs = format!("/threads/{thread}/runs");
            let last = ok(client.get(&runs), 200)[0]["run_id"].clone();
            ok(
                client.delete(&format!("{runs}/{}", last.as_str().unwrap())),
                204,
            );
            let open = client.state(&thread)["interrupts"].clone();
            assert_eq!(open.as_array().unwrap().len(), 1, "{durability}");
        }
        let lines = fs::read_to_string(&trace).unwrap();
        let steps = lines.lines().filter(|line| line.starts_with("step"));
        assert_eq!(steps.count(), 1, "{durability}: {lines}");
        assert_eq!(results(place, &server)[1], 0, "{durability}");
    }
}

fn serve_faults(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    (server, client)
}
