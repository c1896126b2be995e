//! The routes of the server, from the list that is made from its own table, each with a request.

use serde_json::{Value, json};

use crate::access::SECRET;
use crate::talk::{self, user};

/// Every route, who may call it and whether it has a body; a test of the server compares it with the table.
const LISTED: &str = include_str!("../../routes.txt");

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Everybody, without a key too.
    Public,
    /// Who has a key.
    Anyone,
    /// Who may read the thread.
    Reader,
    /// Who may write to the thread.
    Writer,
    /// Who may say who may do what with the thread.
    Manager,
    /// Whose thread it is.
    Owner,
    /// Who may read the metrics.
    Operator,
    /// Who may call administration.
    Admin,
}

/// What requests of a thread name.
#[derive(Clone, Debug)]
pub struct Names {
    /// The thread.
    pub thread: String,
    /// One of its runs.
    pub run: String,
    /// One of its checkpoints.
    pub checkpoint: String,
}

impl Names {
    /// Ids that nothing has, below a thread.
    pub fn of(thread: &str) -> Self {
        let new = || uuid::Uuid::now_v7().to_string();
        Self {
            thread: thread.to_owned(),
            run: new(),
            checkpoint: "1f1e52d3-b51d-655d-8000-078d7d9aa83f".to_owned(),
        }
    }
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its method.
    pub method: &'static str,
    /// Its path, with `{name}` for each part that requests give.
    pub path: &'static str,
    /// Who may call it.
    pub right: Right,
    /// Whether it reads a body.
    pub takes_body: bool,
}

/// All routes.
pub fn all() -> Vec<Route> {
    LISTED.lines().map(parse).collect()
}

/// The routes of a thread that have tests of their own, by their methods and paths. The streams of a thread never end:
/// they are silent for strangers, as they are of a thread that does not exist. A command is refused in the body of its
/// response.
pub const APART: [(&str, &str); 4] = [
    ("GET", "/threads/{thread_id}/stream"),
    ("GET", "/threads/{thread_id}/stream/events"),
    ("POST", "/threads/{thread_id}/stream/events"),
    ("POST", "/threads/{thread_id}/commands"),
];

/// Whether a route has tests of its own.
pub fn is_apart(route: &Route) -> bool {
    APART.contains(&(route.method, route.path))
}

/// The routes that may name a thread, or create one with an id.
pub fn naming_threads() -> Vec<Route> {
    const ELSEWHERE: [&str; 5] = ["/runs", "/runs/stream", "/runs/wait", "/runs/batch", "/mcp"];
    let mut routes = all();
    routes.retain(|route| {
        let rooms = ["/assistants", "/store", "/admin", "/runs/crons", "/metrics"];
        !rooms.iter().any(|room| route.path.starts_with(room))
            && !ELSEWHERE.contains(&route.path)
            && !is_apart(route)
    });
    routes
}

/// The routes that are about a thread: only a level on it lets a client in.
pub fn of_threads() -> Vec<Route> {
    let mut routes = all();
    routes.retain(|route| (Right::Reader..=Right::Owner).contains(&route.right));
    routes.retain(|route| !is_apart(route));
    routes
}

fn parse(line: &'static str) -> Route {
    let mut words = line.split(' ');
    Route {
        method: words.next().unwrap(),
        path: words.next().unwrap(),
        right: match words.next().unwrap() {
            "Public" => Right::Public,
            "Anyone" => Right::Anyone,
            "Reader" => Right::Reader,
            "Writer" => Right::Writer,
            "Manager" => Right::Manager,
            "Owner" => Right::Owner,
            "Operator" => Right::Operator,
            "Admin" => Right::Admin,
            other => panic!("an unknown right: {other}"),
        },
        takes_body: words.next() == Some("body"),
    }
}

impl Route {
    /// A path of it.
    pub fn path(&self, names: &Names) -> String {
        let name = if self.path.contains("/tags/") {
            "t"
        } else {
            "main-v2"
        };
        let assistant = if self.path.starts_with("/a2a/") {
            "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
        } else {
            "agent"
        };
        let path = self
            .path
            .replace("{thread_id}", &names.thread)
            .replace("{run_id}", &names.run)
            .replace("{checkpoint_id}", &names.checkpoint)
            .replace("{name}", name)
            .replace("{principal}", "dora")
            .replace("{assistant_id}", assistant)
            .replace("{namespace}", "x");
        if self.path.ends_with("/diff") {
            path + "?from=branch:main&to=branch:main-v2"
        } else {
            path
        }
    }

    /// A body of it that the server accepts. There is one for each route that takes a body.
    pub fn body(&self, names: &Names) -> Value {
        if !self.takes_body {
            return Value::Null;
        }
        let thread = &names.thread;
        let run = json!({"assistant_id": "agent", "input": {"messages": [user("x")]}});
        match (self.method, self.path) {
            ("POST", "/threads" | "/commands/create-thread") => json!({"thread_id": thread}),
            ("POST", "/threads/search") => json!({"ids": [thread]}),
            ("POST", "/threads/count") => json!({"metadata": {"word": SECRET}}),
            ("POST", "/threads/prune") => {
                json!({"thread_ids": [thread], "strategy": "keep_latest"})
            }
            ("POST", "/commands/fork-thread") => json!({"source_thread_id": thread}),
            ("POST", "/commands/send-message") => {
                json!({"thread_id": thread, "content": "x", "assistant_id": "agent"})
            }
            ("PUT", "/threads/{thread_id}/members/{principal}") => json!({"level": "reader"}),
            ("PATCH", "/threads/{thread_id}") => json!({"metadata": {"x": 1}}),
            ("POST", "/threads/{thread_id}/state") => json!({"values": {"messages": [user("x")]}}),
            ("POST", "/threads/{thread_id}/state/checkpoint") => {
                json!({"checkpoint": {"checkpoint_id": names.checkpoint}})
            }
            ("POST", "/threads/{thread_id}/stream/events") => json!({"channels": ["lifecycle"]}),
            ("POST", "/threads/{thread_id}/commands") => {
                json!({"id": 1, "method": "run.start", "params": run})
            }
            ("POST", "/threads/{thread_id}/messages") => user("x"),
            ("POST", "/threads/{thread_id}/branches") => json!({"name": "new"}),
            ("PATCH", "/threads/{thread_id}/branches/{name}") => json!({"name": "renamed"}),
            ("POST", "/threads/{thread_id}/rewind") => json!({"message_id": "u1"}),
            ("POST", "/threads/{thread_id}/restore") => json!({"tag": "t"}),
            (
                "POST",
                "/threads/{thread_id}/fork"
                | "/threads/{thread_id}/history"
                | "/threads/{thread_id}/btw"
                | "/threads/{thread_id}/branches/{name}/activate",
            )
            | ("PUT", "/threads/{thread_id}/tags/{name}") => json!({"message_id": null}),
            ("POST", "/threads/{thread_id}/runs/crons") => talk::with(run, "schedule", "0 0 1 1 *"),
            ("POST", path) if path.starts_with("/threads/{thread_id}/runs") => run,
            ("POST", "/runs/cancel") => json!({"thread_id": thread, "run_ids": [names.run]}),
            ("POST", "/runs/batch") => json!([run]),
            ("POST", "/mcp") => json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            ("POST", "/a2a/{assistant_id}") => {
                let task = format!("{thread}:{}", names.run);
                json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}})
            }
            ("POST", "/runs" | "/runs/stream" | "/runs/wait") => run,
            // Neither assistants nor items of the store belong to a thread.
            (_, path) if path.starts_with("/assistants") || path.starts_with("/store") => json!({}),
            ("POST", "/admin/projections/rebuild") => json!({"thread_id": thread}),
            (method, path) => panic!("write a body for {method} {path}"),
        }
    }
}
