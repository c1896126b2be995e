//! A server with keys, three of its principals, and a thread with something of every kind.

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::place::Place;
use crate::routes::Names;
use crate::server::{Server, Setup};
use crate::talk::{self, get, ok, put, say, store, thread_of, whole};

/// Who has which key.
const KEYS: &str = "ann=key-a,bob=key-b,cid=key-c,root=key-r";

/// A word that only ann's threads have.
pub const SECRET: &str = "hush-of-ann";

/// How a server with keys is started.
pub fn keyed() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", KEYS)
        .env("BACKSTITCH_ADMINS", "root")
        .env("BACKSTITCH_LEASE", "2")
}

/// A server with keys, whose log can be read.
pub fn serve(place: &Place) -> Server {
    place.start(keyed())
}

/// Clients of ann, bob and cid.
pub fn people(server: &Server) -> [Client; 3] {
    let client = Client::of(server);
    ["key-a", "key-b", "key-c"].map(|key| client.with_key(key))
}

/// A client who has nothing to do with what the others do.
pub fn bystander(server: &Server) -> Client {
    Client::of(server).with_key("key-r")
}

/// Any request of JSON, without a body if that is null.
pub fn send(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    let text = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    client.send(method, path, &[], text.as_bytes())
}

/// Gives somebody a level on a thread.
pub fn grant(client: &Client, thread: &str, who: &str, level: &str) {
    let path = format!("/threads/{thread}/members/{who}");
    let answer = put(client, &path, &json!({"level": level}));
    assert!(answer.status < 300, "{}", answer.text());
}

/// Withdraws somebody's level on a thread.
pub fn revoke(client: &Client, thread: &str, who: &str) {
    let path = format!("/threads/{thread}/members/{who}");
    ok(client.delete(&path), 204);
}

/// A thread with something of every kind: two branches, a tag, a run that has ended, messages.
pub fn furnished(client: &Client, word: &str) -> Names {
    let thread = thread_of(client, &["u1", "a2", "u3"]);
    let metadata = json!({"metadata": {"word": word}});
    ok(
        talk::patch(client, &format!("/threads/{thread}"), &metadata),
        200,
    );
    let aside = json!({"id": "u4", "role": "user", "content": word, "parent_id": "a2"});
    store(client, &thread, &aside);
    let back = format!("/threads/{thread}/branches/main/activate");
    ok(client.post(&back, &json!({})), 200);
    let at = json!({"message_id": "a2"});
    ok(put(client, &format!("/threads/{thread}/tags/t"), &at), 201);
    say(client, &thread, word);
    let run = get(client, &thread, "runs")[0]["run_id"].clone();
    let checkpoint = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    Names {
        thread,
        run: run.as_str().unwrap().to_owned(),
        checkpoint: checkpoint.as_str().unwrap().to_owned(),
    }
}

/// All that its owner sees of a thread.
pub fn seen(client: &Client, thread: &str) -> Vec<Value> {
    let mut all = whole(client, thread);
    all.push(get(client, thread, "runs"));
    all.push(get(client, thread, "members"));
    all.push(get(client, thread, "events?limit=1000"));
    all
}
