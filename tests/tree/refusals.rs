//! What the operations on the tree refuse, row by row, and that a refusal writes nothing.

mod access;
mod addresses;
mod conflicts;
mod limits;

use serde_json::{Value, json};

use test_support::client::{Answer, Client};
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::talk::{self, code, fork, get, id_of, ok, put, store, thread_of, whole};

/// A request: method, path, body (null for none).
type Request = (&'static str, String, Value);

fn send(client: &Client, (method, path, body): &Request) -> Answer {
    let text = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    client.send(method, path, &[], text.as_bytes())
}

/// A server with a family: a thread `u1 a2 u3` and a second branch `u1 a2 u4`, a fork of it with
/// a message of its own, and a stranger.
struct Family {
    server: Server,
    client: Client,
    /// Active is `main`; the other branch is `main-v2`, and the tag `t` is at `a2`.
    thread: String,
    /// Shares `u1 a2`, and has `f3`.
    fork: String,
    /// Of another family: `s1`.
    stranger: String,
}

impl Family {
    fn new(place: &Place) -> Self {
        let (server, client) = serve(place);
        Self::of(server, client)
    }

    fn of(server: Server, client: Client) -> Self {
        let thread = thread_of(&client, &["u1", "a2", "u3"]);
        let aside = json!({"id": "u4", "role": "user", "content": "aside", "parent_id": "a2"});
        store(&client, &thread, &aside);
        let back = format!("/threads/{thread}/branches/main/activate");
        ok(client.post(&back, &json!({})), 200);
        let at = json!({"message_id": "a2"});
        ok(put(&client, &format!("/threads/{thread}/tags/t"), &at), 201);
        let fork = id_of(&fork(&client, &thread, &at));
        let own = json!({"id": "f3", "role": "user", "content": "own"});
        store(&client, &fork, &own);
        let stranger = thread_of(&client, &["s1"]);
        Self {
            server,
            client,
            thread,
            fork,
            stranger,
        }
    }

    /// All that clients can see of it.
    fn seen(&self) -> Vec<Value> {
        seen(&self.client, &[&self.thread, &self.fork, &self.stranger])
    }

    /// Each of these requests is refused so, and none of them writes anything.
    fn refuses(&self, rows: Vec<(Request, u16, &str)>) {
        let watched = [&*self.thread, &self.fork, &self.stranger];
        refuses(&self.client, &watched, rows);
    }

    /// A POST below the thread.
    fn post(&self, path: &str, body: Value) -> Request {
        below(&self.thread, "POST", path, body)
    }

    /// Any request below the thread.
    fn at(&self, method: &'static str, path: &str, body: Value) -> Request {
        below(&self.thread, method, path, body)
    }
}

/// A request below a thread.
fn below(thread: &str, method: &'static str, path: &str, body: Value) -> Request {
    (method, format!("/threads/{thread}/{path}"), body)
}

/// A command.
fn command(name: &str, body: Value) -> Request {
    ("POST", format!("/commands/{name}"), body)
}

/// All that clients can see of threads, and which threads there are.
fn seen(client: &Client, threads: &[&str]) -> Vec<Value> {
    let mut listed = ok(client.get("/threads?limit=100"), 200);
    listed.as_array_mut().unwrap().sort_by_key(id_of);
    let mut all = vec![listed];
    for thread in threads {
        all.extend(whole(client, thread));
        all.push(get(client, thread, "runs"));
        all.push(get(client, thread, "members"));
    }
    all
}

/// Each of these requests is refused so, and none of them writes anything that could be seen.
fn refuses(client: &Client, watched: &[&str], rows: Vec<(Request, u16, &str)>) {
    let before = seen(client, watched);
    for (request, status, expected) in rows {
        let answer = send(client, &request);
        let text = answer.text();
        assert_eq!(answer.status, status, "{request:?}: {text}");
        assert_eq!(code(&answer, status), expected, "{request:?}: {text}");
    }
    for (old, new) in before.iter().zip(seen(client, watched)) {
        assert_eq!(*old, new, "nothing was written");
    }
}

/// An id that nothing has.
fn nothing() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn user(id: &str) -> Value {
    json!({"id": id, "role": "user", "content": format!("new text of {id}")})
}
