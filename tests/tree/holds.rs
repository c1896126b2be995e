//! A conversation to which everything is done: after each step the tables hold what they must.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::invariants::Tables;
use test_support::on_both_storages;
use test_support::place::{Place, block_on, serve};
use test_support::server::Server;
use test_support::tables::file;
use test_support::talk::{self, extend, turn};

on_both_storages!(everything_done_to_a_conversation_leaves_whole_tables,);

fn tables(place: &Place, server: &Server) -> Tables {
    match place.url() {
        Some(url) => Tables::Url(url.to_owned()),
        None => Tables::File(file(server)),
    }
}

struct Talk {
    client: Client,
    tables: Tables,
}

impl Talk {
    fn whole(&self, after: &str) {
        let complaints = block_on(self.tables.complaints(false));
        assert!(complaints.is_empty(), "after {after}: {complaints:#?}");
    }

    fn whole_with_gaps(&self, after: &str) {
        let complaints = block_on(self.tables.complaints(true));
        assert!(complaints.is_empty(), "after {after}: {complaints:#?}");
    }

    fn say(&self, thread: &str, text: &str, extra: Value) {
        let labelled = talk::with(turn(text), "metadata", json!({"said": text}));
        self.client.run(thread, &extend(labelled, extra));
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.client.post(path, &body);
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer.json()
    }

    fn messages(&self, thread: &str) -> Vec<String> {
        talk::path(&self.client, thread, "")
    }
}

fn everything_done_to_a_conversation_leaves_whole_tables(place: &Place) {
    let (server, client) = serve(place);
    let tables = tables(place, &server);
    let talk = Talk { client, tables };
    let thread = talk.client.thread();
    let of = |path: &str| format!("/threads/{thread}/{path}");
    talk.say(&thread, "one", json!({}));
    talk.say(&thread, "tool: 1 2", json!({}));
    talk.whole("two runs");
    let said = talk.messages(&thread);
    let end_of_first = talk.client.history(&thread)[6]["checkpoint_id"].clone();

    talk.post(&of("rewind"), json!({"message_id": said[1]}));
    talk.say(&thread, "other", json!({}));
    talk.whole("a rewind");
    talk.post(&of("btw"), json!({"name": "aside"}));
    talk.say(&thread, "by the way", json!({"branch": "aside"}));
    talk.say(&thread, "on", json!({}));
    talk.whole("an aside");
    let edit = json!({"id": said[0], "role": "user", "content": "one, edited"});
    talk.post(&of("messages"), edit);
    talk.say(&thread, "again", json!({"checkpoint_id": end_of_first}));
    talk.whole("an edit and a run from an old checkpoint");

    let set = talk.client.send("PUT", &of("tags/t"), &[], b"{}");
    assert_eq!(set.status, 201, "{}", set.text());
    let forked = talk.post(&of("fork"), json!({"message_id": said[2]}));
    let fork = forked["thread_id"].as_str().unwrap().to_owned();
    talk.say(&fork, "in the fork", json!({}));
    let copied = talk.post(&of("copy"), json!({}));
    let copy = copied["thread_id"].as_str().unwrap().to_owned();
    talk.say(&copy, "in the copy", json!({}));
    talk.whole("a tag, a fork and a copy");

    talk.say(&thread, "never mind", json!({}));
    let runs = talk.client.get(&of("runs")).json();
    let newest = runs[0]["run_id"].as_str().unwrap();
    let undone = talk.client.delete(&of(&format!("runs/{newest}")));
    assert_eq!(undone.status, 204, "{}", undone.text());
    talk.whole_with_gaps("a rollback");
    let before = block_on(talk.tables.paths());
    let keep = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    assert_eq!(
        talk.post("/threads/prune", keep),
        json!({"pruned_count": 1})
    );
    talk.whole_with_gaps("pruning");
    talk.say(&thread, "after all", json!({}));
    talk.whole_with_gaps("a run after pruning");

    let others =
        |thread: &str, paths: std::collections::BTreeMap<(String, String), Vec<String>>| {
            let id = thread.replace('-', "");
            let mut left = paths;
            left.retain(|(of, _), _| *of == id);
            left
        };
    let of_copy = others(&copy, before);
    let of_fork = others(&fork, block_on(talk.tables.paths()));
    let deleted = talk.client.delete(&format!("/threads/{thread}"));
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    talk.whole_with_gaps("the deletion of the root");
    let left = block_on(talk.tables.paths());
    assert_eq!(others(&copy, left.clone()), of_copy);
    assert_eq!(others(&fork, left), of_fork);
    talk.say(&fork, "still here", json!({}));
    let deleted = talk.client.delete(&format!("/threads/{fork}?scope=tree"));
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    talk.whole_with_gaps("the deletion of the tree");
    talk.say(&copy, "and here", json!({}));
    talk.whole_with_gaps("a run in the copy");
}
