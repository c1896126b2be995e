//! Clients of the event-streaming protocol: the hook of the package for React and its like.

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{ok, until};

use super::{contents, human, open};

on_both_storages!(
    the_hook_starts_a_thread_with_its_run_and_reads_it_from_the_beginning,
    the_hook_resumes_an_interrupt_and_stops_a_run,
);

struct Page<'a> {
    client: &'a Client,
    thread: String,
}

impl Page<'_> {
    fn command(&self, id: u64, method: &str, params: &Value) -> Value {
        let path = format!("/threads/{}/commands", self.thread);
        let body = json!({"id": id, "method": method, "params": params});
        let reply = ok(self.client.post(&path, &body), 200);
        assert_eq!(
            (&reply["type"], &reply["id"]),
            (&json!("success"), &json!(id))
        );
        reply["result"].clone()
    }

    fn start(&self, graph: &str, input: Value) -> Value {
        let configurable = json!({"thread_id": self.thread});
        let params = json!({
            "input": input, "config": {"configurable": configurable}, "assistant_id": graph,
        });
        self.command(1, "run.start", &params)
    }

    fn events(&self, body: &Value) -> Open {
        let path = format!("/threads/{}/stream/events", self.thread);
        let open = open(self.client, "POST", &path, body);
        assert_eq!(open.status, 200);
        open
    }

    /// The two streams that the hook opens: one for what concerns the run, one for what it shows.
    fn watch(&self) -> [Open; 2] {
        let channels = [
            "values",
            "checkpoints",
            "lifecycle",
            "input",
            "messages",
            "tools",
        ];
        let shown = json!({"channels": channels, "namespaces": [[]], "depth": 1});
        let control = json!({"channels": ["lifecycle", "input"]});
        [self.events(&control), self.events(&shown)]
    }

    fn state(&self) -> Value {
        ok(
            self.client.get(&format!("/threads/{}/state", self.thread)),
            200,
        )
    }
}

/// The events up to the end of a run, by that name.
fn up_to(stream: &mut Open, end: &str) -> Vec<Event> {
    let mut events = vec![];
    loop {
        let event = stream.event().unwrap();
        let ends = event.name == "lifecycle" && event.data["params"]["data"]["event"] == end;
        events.push(event);
        if ends {
            return events;
        }
    }
}

fn of<'a>(events: &'a [Event], name: &str) -> Vec<&'a Value> {
    let named = events.iter().filter(|event| event.name == name);
    named.map(|event| &event.data["params"]["data"]).collect()
}

fn the_hook_starts_a_thread_with_its_run_and_reads_it_from_the_beginning(place: &Place) {
    let (_server, client) = serve(place);
    let page = Page {
        client: &client,
        thread: uuid::Uuid::now_v7().to_string(),
    };
    let run = page.start("agent", human("one two"));
    assert!(run["run_id"].is_string());
    let [mut control, mut shown] = page.watch();
    let control = up_to(&mut control, "completed");
    let shown = up_to(&mut shown, "completed");
    for events in [&control, &shown] {
        // The numbers before that are for what is shown of a thread before anything is stored.
        assert_eq!(events[0].data["seq"], (1 << 20) + 1);
        assert_eq!(of(events, "lifecycle")[0]["event"], "running");
    }
    let deltas = of(&shown, "messages").into_iter();
    let deltas: String = deltas
        .filter_map(|data| data["delta"]["text"].as_str())
        .collect();
    assert_eq!(deltas, "echo: one two");
    // Read the moment the run has ended.
    assert_eq!(
        contents(&page.state()["values"]),
        ["one two", "echo: one two"]
    );

    // A page that mounts the thread, and a turn from the checkpoint before the message.
    let path = format!("/threads/{}/history", page.thread);
    let history = ok(client.post(&path, &json!({"limit": 20})), 200);
    assert_eq!(history.as_array().unwrap().len(), 3);
    let start = history[2]["checkpoint"]["checkpoint_id"].clone();
    let configurable = json!({"thread_id": page.thread, "checkpoint_id": start});
    let params = json!({
        "input": human("three"), "config": {"configurable": configurable}, "assistant_id": "agent",
    });
    let [_, mut replay] = page.watch();
    let first: Vec<_> = up_to(&mut replay, "completed");
    assert_eq!(first, shown);
    page.command(2, "run.start", &params);
    let second = up_to(&mut replay, "completed");
    let last = of(&second, "values").last().copied().unwrap();
    assert_eq!(last["messages"][0]["content"], "three");
    assert_eq!(contents(&page.state()["values"]), ["three", "echo: three"]);
}

fn the_hook_resumes_an_interrupt_and_stops_a_run(place: &Place) {
    let (_server, client) = serve(place);
    let page = Page {
        client: &client,
        thread: uuid::Uuid::now_v7().to_string(),
    };
    page.start("approve", json!({"request": "pay"}));
    let [mut control, mut shown] = page.watch();
    let events = up_to(&mut control, "interrupted");
    let asked = of(&events, "input.requested")[0].clone();
    up_to(&mut shown, "interrupted");
    let state = page.state();
    assert_eq!(
        state["tasks"][0]["interrupts"][0]["id"],
        asked["interrupt_id"]
    );
    let respond = json!({
        "namespace": [], "interrupt_id": asked["interrupt_id"], "response": "yes",
    });
    page.command(3, "input.respond", &respond);
    let events = up_to(&mut shown, "completed");
    let last = of(&events, "values").last().copied().unwrap();
    assert_eq!(last["result"], "answer=yes");
    assert_eq!(page.state()["values"]["result"], "answer=yes");

    let page = Page {
        client: &client,
        thread: uuid::Uuid::now_v7().to_string(),
    };
    let run = page.start("slow", json!({"ms": 60_000, "ticks": 4}));
    let [_, mut shown] = page.watch();
    let of_run = format!(
        "/threads/{}/runs/{}",
        page.thread,
        run["run_id"].as_str().unwrap()
    );
    ok(
        client.post_text(&format!("{of_run}/cancel?wait=0&action=interrupt"), ""),
        202,
    );
    up_to(&mut shown, "interrupted");
    until("the row says so", || {
        ok(client.get(&of_run), 200)["status"] == "interrupted"
    });
}
