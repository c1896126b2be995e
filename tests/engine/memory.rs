//! Long-term memory as nodes see it.

use std::sync::Arc;

use async_trait::async_trait;
use backstitch::{
    Local, RunOptions,
    channel::Kind,
    graph::{Compiled, Graph, Output, START},
    llm::Embeddings,
    run::{Ended, Input, ThreadId},
    value,
    value::Value,
};
use serde_json::json;

use crate::{on_both, storages::Storage};
use test_support::{client::Client, on_both_storages, place::Place, server::Setup};

on_both!(
    a_node_finds_what_another_thread_remembered,
    a_namespace_without_labels_fails_the_node,
    items_are_found_by_meaning_once_there_is_a_model,
);

on_both_storages!(memory_is_shared_by_threads_and_outlives_the_server,);

/// Writes `text` under `key`, and shows what was there before.
fn swap() -> Arc<Compiled> {
    Graph::untyped()
        .channel("namespace", Kind::Last)
        .channel("text", Kind::Last)
        .channel("before", Kind::Last)
        .node("swap", |ctx| async move {
            let input = ctx.input();
            let labels: Vec<&str> = input["namespace"]
                .as_list()
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let before: Option<Value> = ctx.recall(&labels, "key").await?;
            ctx.remember(&labels, "key", &input["text"]).await?;
            Ok(Output::update([("before", before.unwrap_or_default())]))
        })
        .edge(START, "swap")
        .build()
        .unwrap()
}

async fn swapped(local: &Local, namespace: Value, text: Value) -> backstitch::run::Finished {
    let thread = local.thread_with(&swap(), ThreadId::mint());
    let input = Input::Value(value!({"namespace": namespace, "text": text}));
    thread.run(input, RunOptions::default()).await.unwrap()
}

async fn a_node_finds_what_another_thread_remembered(storage: &Storage) {
    let (here, there) = (value!(["users", "ada"]), value!(["users"]));
    let rich =
        value!({"list": [1, 2.0, null], "text": "\0", "big": 18_446_744_073_709_551_615_u64});
    for (namespace, text, before) in [
        (&here, value!("one"), Value::Null),
        (&here, rich.clone(), value!("one")),
        (&there, value!("two"), Value::Null),
        (&here, value!("three"), rich),
    ] {
        let done = swapped(&storage.local, namespace.clone(), text).await;
        assert_eq!(done.result.unwrap(), Ended::Done);
        assert_eq!(done.values["before"], before);
    }
}

async fn a_namespace_without_labels_fails_the_node(storage: &Storage) {
    for (namespace, says) in [
        (value!([]), "at least one label"),
        (value!(["a", ""]), "cannot be empty"),
        (value!(["a.b"]), "period"),
    ] {
        let done = swapped(&storage.local, namespace, value!("x")).await;
        let error = done.result.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// Texts with as many of the letter `a` are near each other.
struct Letters;

#[async_trait]
impl Embeddings for Letters {
    fn name(&self) -> &str {
        "letters"
    }

    async fn embed(&self, texts: Vec<String>) -> anyhow::Result<Vec<Vec<f32>>> {
        let vector = |text: &String| {
            let angle = text.matches('a').count() as f32 / 10.0;
            vec![angle.cos(), angle.sin()]
        };
        Ok(texts.iter().map(vector).collect())
    }
}

/// Stores some texts, then finds the nearest one to a query.
fn nearest() -> Arc<Compiled> {
    Graph::untyped()
        .channel("found", Kind::Last)
        .node("store", |ctx| async move {
            for text in ["a", "aaaaaa", "aaaaaaaaaaa"] {
                ctx.remember(&["texts"], text, value!({ "text": text }))
                    .await?;
            }
            let found = ctx.search::<Value>(&["texts"], Some("aaaaa"), 1).await?;
            let text = found[0].value["text"].clone();
            Ok(Output::update([("found", text)]))
        })
        .edge(START, "store")
        .build()
        .unwrap()
}

async fn items_are_found_by_meaning_once_there_is_a_model(storage: &Storage) {
    let refused = storage.local.clone().embeddings(Arc::new(Letters), &["[x"]);
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("`[x` is no path"), "{refused}");
    let local = storage
        .local
        .clone()
        .embeddings(Arc::new(Letters), &["text"]);
    let thread = local.unwrap().thread(&nearest());
    let input = || Input::Value(value!({"found": null}));
    let done = thread.run(input(), RunOptions::default()).await.unwrap();
    assert_eq!(done.values["found"], "aaaaaa", "{:?}", done.result);
    // Without one they come by their keys.
    let other = storage.local.thread(&nearest());
    let done = other.run(input(), RunOptions::default()).await.unwrap();
    assert_eq!(done.values["found"], "a");
}

fn memory_is_shared_by_threads_and_outlives_the_server(place: &Place) {
    let mut server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let notes = |client: &Client, who: &str, text: &str| {
        let body = json!({"assistant_id": "notes", "input": {"who": who, "text": text}});
        client.run(&client.thread(), &body)["notes"].clone()
    };
    assert_eq!(notes(&client, "ada", "one"), json!(["one"]));
    assert_eq!(notes(&client, "ada", "two"), json!(["one", "two"]));
    assert_eq!(notes(&client, "bob", "three"), json!(["three"]));
    server.kill();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(notes(&client, "ada", "four"), json!(["one", "two", "four"]));
    assert_eq!(notes(&client, "ada", "forget"), json!([]));
    assert_eq!(notes(&client, "ada", "five"), json!(["five"]));
    assert_eq!(notes(&client, "bob", "six"), json!(["three", "six"]));
}
