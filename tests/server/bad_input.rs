//! Input that no server likes: each gets a clear answer, changes nothing, and the process lives on.
mod every_field;
mod requests;
mod runs;
mod start;
mod values;

use std::path::Path;
use std::process::ExitStatus;

use serde_json::{Value, json};
use test_support::client::{Client, Event};
use test_support::place::Place;
use test_support::server::{Server, Setup};

/// A server, and a thread with one finished run whose state must never change.
struct Scene {
    _server: Server,
    client: Client,
    thread: String,
    before: (Value, Vec<Value>, usize),
}

impl Scene {
    fn new(place: &Place) -> Self {
        let server = place.start(Setup::example("faulty_server"));
        let client = Client::of(&server);
        let thread = client.thread();
        client.run(&thread, &good());
        let mut scene = Self {
            _server: server,
            client,
            thread,
            before: (Value::Null, vec![], 0),
        };
        scene.before = scene.now();
        scene
    }

    fn now(&self) -> (Value, Vec<Value>, usize) {
        let runs = self.client.get(&format!("/threads/{}/runs", self.thread));
        (
            self.client.state(&self.thread),
            self.client.history(&self.thread),
            runs.json().as_array().unwrap().len(),
        )
    }

    /// Every door that creates a run on the thread refuses the body in the same way.
    fn refused(&self, body: impl AsRef<[u8]>, status: u16) -> String {
        let body = body.as_ref();
        let details = ["", "/stream", "/wait"].map(|door| {
            let path = format!("/threads/{}/runs{door}", self.thread);
            self.client.post_text(&path, body).refused(status)
        });
        assert!(
            details.iter().all(|detail| *detail == details[0]),
            "{details:?}"
        );
        details.into_iter().next().unwrap()
    }

    /// Nothing was written, and the next request works.
    fn unharmed(self) {
        assert_eq!(self.now(), self.before);
        self.lives();
    }

    fn lives(&self) {
        let thread = self.client.thread();
        assert_eq!(
            self.client.run(&thread, &good())["done"],
            json!(["good", "bad"])
        );
    }

    /// A run on a new thread that fails: its `error` event, and its thread.
    fn fails(&self, body: &Value) -> (Value, String) {
        let thread = self.client.thread();
        let mut open = self.client.open_stream(&thread, body);
        let run = open.run();
        let events: Vec<Event> = std::iter::from_fn(|| open.event()).collect();
        let last = events.last().unwrap();
        assert_eq!(last.name, "error", "{events:?}");
        let row = self
            .client
            .get(&format!("/threads/{thread}/runs/{run}"))
            .json();
        assert_eq!(row["status"], "error");
        let row = self.client.get(&format!("/threads/{thread}")).json();
        assert_eq!(
            (&row["status"], &row["error"]),
            (&json!("error"), &last.data)
        );
        // Who waits is told the same, but for the place, which is in another thread.
        let waited = self.client.run(&self.client.thread(), body);
        let told = |error: &Value| {
            let message = error["message"].as_str().unwrap();
            let what = message.split(" (node `").next().unwrap().to_owned();
            (error["error"].clone(), what)
        };
        assert_eq!(told(&waited["__error__"]), told(&last.data));
        (last.data.clone(), thread)
    }
}

fn good() -> Value {
    json!({"assistant_id": "fault", "input": {"how": "well"}})
}

fn fault(how: &str) -> Value {
    json!({"assistant_id": "fault", "input": {"how": how}})
}
