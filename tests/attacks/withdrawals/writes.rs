//! Every request that writes to a thread on behalf of whoever sends it, each with a thread of its own to write to.

use std::fmt::{self, Display};

use serde_json::{Value, json};
use test_support::access::{SECRET, furnished, grant};
use test_support::client::Client;
use test_support::routes::{self, Names, Right, Route};
use test_support::talk::{self, background, get, ok, slow, until, user, with};

/// Routes that take no level that writes, and write to threads all the same.
const MORE: [(&str, &str); 4] = [
    ("POST", "/threads"),
    ("POST", "/threads/{thread_id}/copy"),
    ("POST", "/a2a/{assistant_id}"),
    ("DELETE", "/assistants/{assistant_id}"),
];

/// Routes that write to no thread to which somebody else gives levels: they read, or what they write is their
/// principal's alone, or they are for those whom the settings name.
const ELSEWHERE: [(&str, &str); 28] = [
    ("POST", "/assistants"),
    ("POST", "/assistants/count"),
    ("POST", "/assistants/search"),
    ("PATCH", "/assistants/{assistant_id}"),
    ("POST", "/assistants/{assistant_id}/latest"),
    ("POST", "/assistants/{assistant_id}/versions"),
    ("POST", "/commands/create-thread"),
    ("POST", "/threads/count"),
    ("POST", "/threads/search"),
    ("POST", "/threads/{thread_id}/history"),
    ("POST", "/threads/{thread_id}/state/checkpoint"),
    ("POST", "/threads/{thread_id}/stream/events"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("POST", "/runs"),
    ("POST", "/runs/batch"),
    ("POST", "/runs/stream"),
    ("POST", "/runs/wait"),
    ("POST", "/runs/crons"),
    ("POST", "/runs/crons/count"),
    ("POST", "/runs/crons/search"),
    ("PATCH", "/runs/crons/{cron_id}"),
    ("DELETE", "/runs/crons/{cron_id}"),
    ("PUT", "/store/items"),
    ("DELETE", "/store/items"),
    ("POST", "/store/items/search"),
    ("POST", "/store/namespaces"),
    ("POST", "/admin/projections/rebuild"),
];

/// What a thread is like to which a request writes.
#[derive(Clone, Copy, PartialEq)]
enum Scene {
    /// It has something of every kind, and no run that is not over.
    Furnished,
    /// The same with a run that waits.
    Queued,
    /// A run of it is executed, and would be for an hour.
    Executed,
    /// Its run has stopped at an interrupt.
    Interrupted,
    /// It ran last with an assistant of the writer's.
    OfAssistant,
}

/// A thread to write to.
pub struct Prepared {
    names: Names,
    /// The id of its interrupt, or of its assistant.
    other: String,
}

/// A request that writes.
pub struct Write {
    pub route: Route,
    scene: Scene,
    query: &'static str,
    body: Box<dyn Fn(&Prepared) -> Value + Send + Sync>,
}

/// How a request is refused.
pub struct Refusal {
    pub status: u16,
    /// A word of its body.
    pub word: &'static str,
}

impl Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = Prepared {
            names: Names::of("THREAD"),
            other: String::new(),
        };
        let (method, path) = (self.route.method, self.route.path);
        write!(f, "{method} {path}{} {}", self.query, (self.body)(&nothing))
    }
}

impl Write {
    fn new(route: Route, body: impl Fn(&Prepared) -> Value + Send + Sync + 'static) -> Self {
        Self {
            route,
            scene: Scene::Furnished,
            query: "",
            body: Box::new(body),
        }
    }

    /// Its route's usual request, with more in its body.
    fn usual(route: Route, more: Value) -> Self {
        Self::new(route, move |on| {
            let body = route.body(&on.names);
            if body.is_null() {
                body
            } else {
                talk::extend(body, more.clone())
            }
        })
    }

    fn on(mut self, scene: Scene) -> Self {
        self.scene = scene;
        self
    }

    fn query(mut self, query: &'static str) -> Self {
        self.query = query;
        self
    }

    /// Whether a reader may send it.
    pub fn takes_reading(&self) -> bool {
        self.route.right == Right::Reader
    }

    pub fn request(&self, on: &Prepared) -> (String, Value) {
        let mut path = self.route.path(&on.names);
        if self.scene == Scene::OfAssistant {
            path = format!("/assistants/{}", on.other);
        }
        let body = (self.body)(on);
        if body.get("forkedAtConversationId").is_some() {
            // The first post to a thread forks another.
            path = path.replace(&on.names.thread, &uuid::Uuid::now_v7().to_string());
        }
        (path + self.query, body)
    }

    /// The thread of ann to which bob is to write, who may do everything with it for now.
    pub fn prepare(&self, ann: &Client, bob: &Client) -> Prepared {
        let mut other = String::new();
        let mut names = match self.scene {
            Scene::Furnished | Scene::Queued => furnished(ann, SECRET),
            Scene::Executed | Scene::Interrupted | Scene::OfAssistant => Names::of(&ann.thread()),
        };
        let thread = &names.thread;
        grant(ann, thread, "dora", "reader");
        grant(ann, thread, "bob", "owner");
        match self.scene {
            Scene::Furnished => {}
            Scene::Queued => {
                names.run = background(ann, thread, &with(talk::turn("x"), "after_seconds", 3600));
            }
            Scene::Executed => {
                names.run = background(ann, thread, &slow(3_600_000, 1));
                until("the run is executed", || {
                    get(ann, thread, "runs")[0]["status"] == "running"
                });
            }
            Scene::Interrupted => {
                let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
                ann.run(thread, &begin);
                let task = &ann.state(thread)["tasks"][0];
                other = task["interrupts"][0]["id"].as_str().unwrap().to_owned();
            }
            Scene::OfAssistant => {
                let made = ok(bob.post("/assistants", &json!({"graph_id": "agent"})), 200);
                other = made["assistant_id"].as_str().unwrap().to_owned();
                bob.run(thread, &with(talk::turn("x"), "assistant_id", &*other));
            }
        }
        Prepared { names, other }
    }

    /// How it is refused to somebody who may read the thread, or may not even know that there is one.
    pub fn refusal(&self, may_read: bool) -> Refusal {
        let (status, word) = match (self.route.path, may_read) {
            _ if self.scene == Scene::Interrupted && !may_read => (200, "\"no_such_interrupt\""),
            // Foreign threads are passed over.
            ("/threads/prune", false) => (200, "{\"pruned_count\":0}"),
            // It deletes those of the assistant's threads that it may.
            ("/assistants/{assistant_id}", _) => (204, ""),
            // Nobody is told more of an id than that it is taken.
            ("/threads", false) => (409, ""),
            ("/threads/{thread_id}/commands", false) => (200, "\"unknown_error\""),
            ("/threads/{thread_id}/commands", true) => (200, "\"permission_denied\""),
            ("/a2a/{assistant_id}", false) => (200, "\"error\""),
            (_, false) => (404, ""),
            (_, true) => (403, "\"forbidden\""),
        };
        Refusal { status, word }
    }
}

/// All of them, from the list of all routes.
pub fn all() -> Vec<Write> {
    let (mut more, mut elsewhere) = (MORE.to_vec(), ELSEWHERE.to_vec());
    let mut found = vec![];
    for route in routes::all() {
        if matches!(route.method, "GET" | "HEAD") {
            continue;
        }
        let is_in = |list: &mut Vec<(&str, &str)>| {
            let at = list
                .iter()
                .position(|one| *one == (route.method, route.path));
            at.map(|at| list.remove(at)).is_some()
        };
        let writes = (Right::Writer..=Right::Owner).contains(&route.right) || is_in(&mut more);
        assert!(
            writes != is_in(&mut elsewhere),
            "{route:?}: say whether it writes to threads"
        );
        if writes {
            found.extend(of(route));
        }
    }
    assert!(more.is_empty(), "no such routes: {more:?}");
    assert!(elsewhere.is_empty(), "no such routes: {elsewhere:?}");
    found
}

/// The requests of one route that take different ways to the database.
fn of(route: Route) -> Vec<Write> {
    let usual = |more: Value| Write::usual(route, more);
    let plain = || usual(json!({}));
    match (route.method, route.path) {
        ("POST", "/threads") => {
            let steps = json!([{"updates": [{"values": {"messages": []}, "as_node": "model"}]}]);
            vec![usual(
                json!({"if_exists": "do_nothing", "supersteps": steps}),
            )]
        }
        ("POST", "/threads/prune") => vec![plain(), usual(json!({"strategy": "delete"}))],
        ("DELETE", "/threads/{thread_id}") => vec![plain(), plain().query("?scope=tree")],
        ("POST", "/threads/{thread_id}/commands") => vec![
            plain(),
            Write::new(route, |on| {
                let params = json!({"interrupt_id": on.other, "response": "yes"});
                json!({"id": 1, "method": "input.respond", "params": params})
            })
            .on(Scene::Interrupted),
        ],
        ("POST", "/threads/{thread_id}/state") => vec![
            plain(),
            usual(json!({"message_id": "a2"})),
            usual(json!({"message_id": "u1"})),
        ],
        ("POST", "/threads/{thread_id}/messages") => vec![
            plain(),
            usual(json!({"parent_id": "u1"})),
            usual(json!({"run": {"assistant_id": "agent"}})),
            Write::new(route, |on| {
                with(user("x"), "forkedAtConversationId", &*on.names.thread)
            }),
        ],
        ("POST", "/threads/{thread_id}/runs") => {
            let strategies = ["reject", "enqueue", "interrupt", "rollback"];
            let by_strategy = strategies.map(|one| usual(json!({"multitask_strategy": one})));
            let mut all = Vec::from(by_strategy);
            all.push(usual(json!({"multitask_strategy": "interrupt"})).on(Scene::Executed));
            all.push(usual(json!({"multitask_strategy": "rollback"})).on(Scene::Executed));
            all.push(usual(json!({"after_seconds": 3600})));
            all.push(Write::new(route, move |on| {
                with(
                    route.body(&on.names),
                    "checkpoint_id",
                    &*on.names.checkpoint,
                )
            }));
            all
        }
        ("DELETE", "/threads/{thread_id}/runs/{run_id}") => {
            vec![
                plain(),
                plain().on(Scene::Queued),
                plain().on(Scene::Executed),
            ]
        }
        ("POST", "/threads/{thread_id}/runs/{run_id}/cancel") => {
            let rollback = || plain().query("?action=rollback");
            [Scene::Queued, Scene::Executed]
                .iter()
                .flat_map(|scene| [plain().on(*scene), rollback().on(*scene)])
                .collect()
        }
        ("POST", "/runs/cancel") => vec![plain().on(Scene::Queued), plain().on(Scene::Executed)],
        ("DELETE", "/assistants/{assistant_id}") => {
            vec![plain().on(Scene::OfAssistant).query("?delete_threads=true")]
        }
        ("POST", "/a2a/{assistant_id}") => {
            let call = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let message = |on: &Prepared| {
                let parts = json!([{"kind": "text", "text": "x"}]);
                json!({"role": "user", "messageId": "m1", "contextId": on.names.thread, "parts": parts})
            };
            vec![
                Write::new(route, move |on| {
                    call("message/send", json!({"message": message(on)}))
                }),
                Write::new(route, move |on| {
                    call("message/stream", json!({"message": message(on)}))
                }),
            ]
        }
        _ => vec![plain()],
    }
}
