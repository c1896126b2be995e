//! Performs a script once undisturbed and then with a crash at each point of each of its steps,
//! and compares what is left. On Postgres some of the points are tried, and all of them with `BACKSTITCH_CRASHES=all`.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    one_request::request,
    saved::Saved,
    traces::{again, counted, missing},
};
use test_support::{
    client::Client,
    place::Place,
    server::{Server, Setup},
    talk::poll_pause,
};

/// Points at which a process dies, each at its first, second, ... time.
const POINTS: [&str; 5] = [
    "runs::claimed",
    "engine::before_flush",
    "engine::before_commit",
    "engine::after_commit",
    "runs::before_finish",
];

/// One run.
#[derive(Clone)]
pub struct Step {
    path: &'static str,
    body: Value,
    /// It begins where an earlier step of the script ended.
    from: Option<usize>,
}

impl Step {
    pub fn run(assistant: &str) -> Self {
        Self {
            path: "/threads/$THREAD/runs",
            body: json!({"assistant_id": assistant}),
            from: None,
        }
    }

    pub fn send_message(text: &str) -> Self {
        Self {
            path: "/commands/send-message",
            body: json!({"thread_id": "$THREAD", "content": text}),
            from: None,
        }
    }

    pub fn input(self, input: Value) -> Self {
        self.with("input", input)
    }

    pub fn resume(self, answer: Value) -> Self {
        self.with("command", json!({"resume": answer}))
    }

    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.body[key] = value;
        self
    }

    pub fn at_end_of(mut self, step: usize) -> Self {
        self.from = Some(step);
        self
    }
}

/// Steps on one thread.
pub struct Script {
    durability: &'static str,
    steps: Vec<Step>,
}

impl Script {
    pub fn new(durability: &str) -> Self {
        let known = ["sync", "async", "exit"];
        Self {
            durability: known.into_iter().find(|one| *one == durability).unwrap(),
            steps: vec![],
        }
    }

    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps.extend(steps);
        self
    }
}

/// What a thread shows that clients compare, without ids and times.
#[derive(Debug, PartialEq)]
struct Shown {
    values: Value,
    next: Value,
    questions: Vec<Value>,
    status: Value,
    run: String,
    /// Superstep, source and what comes next, of each checkpoint, newest first.
    history: Vec<(Value, Value, Value)>,
    branches: Vec<(Value, Value)>,
    messages: Vec<Value>,
}

/// A server that is made to die.
pub struct Rig {
    server: RefCell<Server>,
    /// Whether only some points are tried.
    few: bool,
    /// Whether what it stores is not in its folder.
    is_elsewhere: bool,
}

/// A thread on which the first steps of a script were performed.
#[derive(Clone)]
struct Prepared {
    thread: String,
    /// Where each of them ended.
    ends: Vec<Value>,
    /// How many runs it has.
    runs: usize,
}

impl Prepared {
    fn on(thread: String) -> Self {
        Self {
            thread,
            ends: vec![],
            runs: 0,
        }
    }
}

/// Where every crash of a step begins: on SQLite with a copy of the disk, elsewhere with a thread of its own.
type Beginning = Option<(Prepared, Saved)>;

impl Rig {
    pub fn new(place: &Place) -> Self {
        let setup = Setup::example("faulty_server").env("BACKSTITCH_LEASE", "1");
        Self {
            server: RefCell::new(place.start(setup)),
            // On Postgres a lease has to lapse after each crash.
            is_elsewhere: place.is_postgres(),
            few: place.is_postgres() && std::env::var_os("BACKSTITCH_CRASHES").is_none(),
        }
    }

    pub fn folder(&self) -> std::path::PathBuf {
        self.server.borrow().folder().to_owned()
    }

    /// What is left is the same wherever the process died.
    pub fn check(&self, script: &Script) {
        self.all(script, None);
    }

    /// And in `sync` no more nodes ran twice than were running when it did.
    pub fn exactly(&self, script: &Script) {
        self.all(script, (script.durability == "sync").then_some(2));
    }

    fn all(&self, script: &Script, most: Option<usize>) {
        let mut died = 0;
        let mut prepared = self.prepared(script, 0);
        let mut beginning = self.beginning(&prepared);
        for at in 0..script.steps.len() {
            match &beginning {
                Some((_, saved)) => {
                    self.put_back(saved);
                    self.restart("");
                }
                None => prepared = self.prepared(script, at),
            }
            let (whole, undisturbed) = self.undisturbed(script, at, &mut prepared);
            let after = self.beginning(&prepared);
            for (number, point) in POINTS.iter().enumerate() {
                let hits = match self.few {
                    true if (at + number) % 3 > 0 => continue,
                    true => 1 + at % 2..=1 + at % 2,
                    false => 1..=usize::MAX,
                };
                for hit in hits {
                    let fault = format!("{point}=abort@{hit}");
                    let (durability, body) = (script.durability, &script.steps[at].body);
                    let context = format!("{durability}, step {at} {body}, {fault}");
                    let prepared = self.begun(script, at, beginning.as_ref());
                    let Some(crashed) = self.crashed(script, at, &prepared, &fault) else {
                        break;
                    };
                    died += 1;
                    let shown = self.shown(&prepared.thread, &crashed);
                    assert_eq!(shown, whole, "{context}");
                    let traces = self.traces(&prepared.thread);
                    let again = again(&undisturbed, &traces);
                    if let Some(most) = most {
                        // A superstep that is stored is not repeated.
                        let most = if *point == "engine::after_commit" {
                            0
                        } else {
                            most
                        };
                        assert!(again.len() <= most, "{context}: {again:?} ran again");
                    }
                    assert_eq!(missing(&undisturbed, &traces), [""; 0], "{context}");
                }
            }
            beginning = after;
        }
        assert!(died > 0, "no crash");
    }

    /// What is on the disk after some steps. The server ends.
    fn beginning(&self, prepared: &Prepared) -> Beginning {
        if self.is_elsewhere {
            return None;
        }
        self.server.borrow_mut().kill();
        let saved = Saved::of(&self.folder());
        Some((prepared.clone(), saved))
    }

    fn put_back(&self, saved: &Saved) {
        self.server.borrow_mut().kill();
        saved.put_back(&self.folder());
    }

    /// A thread on which the steps before this one were performed; its server is to be started.
    fn begun(&self, script: &Script, at: usize, beginning: Option<&(Prepared, Saved)>) -> Prepared {
        match beginning {
            Some((prepared, saved)) => {
                self.put_back(saved);
                prepared.clone()
            }
            None => self.prepared(script, at),
        }
    }

    /// What a step leaves when nobody dies, and the traces of its nodes and of those before.
    fn undisturbed(
        &self,
        script: &Script,
        at: usize,
        prepared: &mut Prepared,
    ) -> (Shown, BTreeMap<String, usize>) {
        let run = self.perform(script, at, prepared);
        let shown = self.shown(&prepared.thread, &run);
        (shown, self.traces(&prepared.thread))
    }

    fn prepared(&self, script: &Script, steps: usize) -> Prepared {
        let mut prepared = Prepared::on(self.thread(&script_graph(script)));
        for at in 0..steps {
            self.perform(script, at, &mut prepared);
        }
        prepared
    }

    pub fn thread(&self, graph: &str) -> String {
        let client = self.client();
        let answer = client.post("/threads", &json!({"metadata": {"graph_id": graph}}));
        answer.json()["thread_id"].as_str().unwrap().to_owned()
    }

    fn client(&self) -> Client {
        Client::of(&self.server.borrow())
    }

    /// Performs a step to its end; answers its run.
    fn perform(&self, script: &Script, at: usize, prepared: &mut Prepared) -> String {
        let client = self.client();
        let (path, body) = self.request(script, at, prepared);
        let answer = client.post(&path, &body);
        assert!(answer.status < 300, "{}", answer.text());
        let run = answer.json()["run_id"].as_str().unwrap().to_owned();
        client.end_of(&prepared.thread, &run);
        let state = client.state(&prepared.thread);
        prepared
            .ends
            .push(state["checkpoint"]["checkpoint_id"].clone());
        prepared.runs = self.runs(&prepared.thread).len();
        run
    }

    fn request(&self, script: &Script, at: usize, prepared: &Prepared) -> (String, Value) {
        let step = &script.steps[at];
        let trace = self.trace(&prepared.thread);
        let text = step.body.to_string();
        let text = text
            .replace("$TRACE", trace.to_str().unwrap())
            .replace("$THREAD", &prepared.thread);
        let mut body: Value = serde_json::from_str(&text).unwrap();
        if step.path.ends_with("/runs") && body["durability"].is_null() {
            body["durability"] = json!(script.durability);
        }
        if let Some(from) = step.from {
            body["checkpoint_id"] = prepared.ends[from].clone();
        }
        (step.path.replace("$THREAD", &prepared.thread), body)
    }

    /// Performs a step in a process that dies of `fault`, and lets another one end it. `None` when
    /// it lived.
    fn crashed(
        &self,
        script: &Script,
        at: usize,
        prepared: &Prepared,
        fault: &str,
    ) -> Option<String> {
        let (path, body) = self.request(script, at, prepared);
        self.restart(fault);
        let died = self.dies_or_ends(&prepared.thread, &path, &body);
        if !died {
            self.restart("");
            return None;
        }
        let client = self.restart("");
        let runs = self.runs(&prepared.thread);
        assert_eq!(runs.len(), prepared.runs + 1, "one run was created");
        client.end_of(&prepared.thread, &runs[0]);
        Some(runs[0].clone())
    }

    /// Runs of a thread, newest first.
    pub fn runs(&self, thread: &str) -> Vec<String> {
        let rows = self.client().get(&format!("/threads/{thread}/runs")).json();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["run_id"].as_str().unwrap().to_owned())
            .collect()
    }

    fn dies_or_ends(&self, thread: &str, path: &str, body: &Value) -> bool {
        let address = self.server.borrow().base_url()["http://".len()..].to_owned();
        // The answer may be lost with the process.
        request(&address, "POST", path, body);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if !self.server.borrow_mut().is_alive() {
                return true;
            }
            let rows = request(
                &address,
                "GET",
                &format!("/threads/{thread}/runs?limit=1&select=status"),
                &json!(null),
            );
            let status = rows.and_then(|rows| Some(rows.get(0)?["status"].as_str()?.to_owned()));
            if status.is_some_and(|status| status != "pending" && status != "running") {
                // It may die of what comes right after the end.
                std::thread::sleep(Duration::from_millis(5));
                return !self.server.borrow_mut().is_alive();
            }
            // Nobody is told of the end of a run whose process may die of it.
            std::thread::sleep(poll_pause(begin));
        }
        panic!("the run neither ends nor kills");
    }

    /// Performs a step in a process that lives.
    pub fn performs(&self, step: &Step, thread: &str) {
        let script = Script::new("sync").steps([step.clone()]);
        let mut prepared = Prepared::on(thread.to_owned());
        self.perform(&script, 0, &mut prepared);
    }

    /// Performs a step in a process that must die of it.
    pub fn dies_of(&self, step: &Step, thread: &str, fault: &str) {
        self.restart(fault);
        assert!(self.dies_in(step, thread), "{fault}");
    }

    /// The same in a process that may die of it, also when it starts: whether it has.
    pub fn may_die_of(&self, step: &Step, thread: &str, fault: &str) -> bool {
        if self.server.borrow_mut().starts_with("FAILPOINTS", fault) {
            return self.dies_in(step, thread);
        }
        self.has_died();
        true
    }

    fn dies_in(&self, step: &Step, thread: &str) -> bool {
        let script = Script::new("sync").steps([step.clone()]);
        let prepared = Prepared::on(thread.to_owned());
        let (path, body) = self.request(&script, 0, &prepared);
        self.dies_or_ends(thread, &path, &body)
    }

    /// Starts the process again and waits until it has died of what it finds.
    pub fn dies_again(&self, fault: &str) {
        self.server.borrow_mut().dies_with("FAILPOINTS", fault);
    }

    /// Waits until it has died of a signal, as it does at a fail point.
    pub fn has_died(&self) {
        let status = self.server.borrow_mut().wait();
        assert_eq!(status.code(), None, "{status}");
    }

    pub fn restart(&self, fault: &str) -> Client {
        let mut server = self.server.borrow_mut();
        server.restart_with("FAILPOINTS", fault);
        Client::of(&server)
    }

    /// How many events of a type a thread has.
    pub fn events(&self, thread: &str, kind: &str) -> usize {
        let page = self
            .client()
            .get(&format!("/threads/{thread}/events?limit=1000"));
        let page = page.json();
        let events = page["events"].as_array().unwrap();
        let numbers: Vec<_> = events
            .iter()
            .map(|one| one["event_number"].as_u64())
            .collect();
        let expected: Vec<_> = (1..).take(events.len()).map(Some).collect();
        assert_eq!(numbers, expected, "without a gap");
        events
            .iter()
            .filter(|one| one["event_type"] == kind)
            .count()
    }

    fn trace(&self, thread: &str) -> std::path::PathBuf {
        self.server
            .borrow()
            .folder()
            .join(format!("{thread}.trace"))
    }

    /// How often each node of a thread was started.
    pub fn traces(&self, thread: &str) -> BTreeMap<String, usize> {
        counted(&self.trace(thread))
    }

    fn shown(&self, thread: &str, run: &str) -> Shown {
        let client = self.client();
        let state = client.state(thread);
        let row = client.get(&format!("/threads/{thread}")).json();
        let run = client.get(&format!("/threads/{thread}/runs/{run}")).json();
        let branches = client.get(&format!("/threads/{thread}/branches")).json();
        let branches = branches["branches"].as_array().unwrap().iter();
        let path = client
            .get(&format!("/threads/{thread}/messages?limit=100"))
            .json();
        let messages = path["messages"].as_array().into_iter().flatten();
        let tasks = state["tasks"].as_array().unwrap().iter();
        let history = client.history(thread);
        assert_eq!(self.events(thread, "RunFinished"), self.runs(thread).len());
        Shown {
            values: plain(state["values"].clone()),
            next: state["next"].clone(),
            questions: tasks
                .flat_map(|task| task["interrupts"].as_array().unwrap().clone())
                .map(|question| question["value"].clone())
                .collect(),
            status: row["status"].clone(),
            run: run["status"].as_str().unwrap().to_owned(),
            history: history
                .iter()
                .map(|state| {
                    let metadata = &state["metadata"];
                    let of = |key: &str| metadata[key].clone();
                    (of("step"), of("source"), state["next"].clone())
                })
                .collect(),
            branches: branches
                .map(|branch| (branch["name"].clone(), branch["active"].clone()))
                .collect(),
            messages: messages.map(|one| one["content"].clone()).collect(),
        }
    }
}

/// Values without what differs from thread to thread.
fn plain(mut values: Value) -> Value {
    if let Some(map) = values.as_object_mut() {
        map.remove("trace");
        if let Some(messages) = map.get_mut("messages").and_then(Value::as_array_mut) {
            for message in messages {
                *message = message["content"].clone();
            }
        }
    }
    values
}

fn script_graph(script: &Script) -> String {
    let first = &script.steps[0].body;
    first["assistant_id"].as_str().unwrap_or("talk").to_owned()
}
