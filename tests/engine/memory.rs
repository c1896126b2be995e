//! Long-term memory, in the storages and as nodes see it.

use std::{sync::Arc, time::Duration};

use backstitch::{
    Local,
    channel::Kind,
    engine::{Ended, Input},
    graph::{Compiled, Graph, Output, START},
    id::ThreadId,
    local::RunOptions,
    storage,
    store::{Put, Store},
    value,
    value::Value,
};
use serde_json::json;

use crate::{on_both, storages::Storage};
use test_support::{client::Client, on_both_storages, place::Place, server::Setup};

on_both!(
    a_node_finds_what_another_thread_remembered,
    a_namespace_without_labels_fails_the_node,
);

on_both_storages!(
    memory_is_shared_by_threads_and_outlives_the_server,
    a_value_that_memory_keeps_for_a_time_goes,
    a_put_keeps_the_time_an_item_was_made,
    names_of_any_characters_are_kept_apart,
);

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

async fn swapped(local: &Local, namespace: Value, text: Value) -> backstitch::engine::Finished {
    let thread = local.thread(&swap(), ThreadId::mint());
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

/// Runs `test` over the storage's own door to memory.
fn over(place: &Place, test: impl AsyncFnOnce(&dyn Store)) {
    test_support::place::block_on(async {
        match place.url() {
            Some(url) => {
                let store =
                    storage::postgres::Store::connect(storage::postgres::Options::new(url)).await;
                test(&store.unwrap()).await;
            }
            None => test(&storage::sqlite::Store::private().unwrap()).await,
        }
    });
}

fn put(key: &str, value: Value, ttl: Option<Duration>) -> Put {
    Put {
        namespace: vec!["n".to_owned()],
        key: key.to_owned(),
        value,
        ttl,
    }
}

async fn found(store: &dyn Store, key: &str) -> Option<Value> {
    let item = store.item(vec!["n".to_owned()], key.to_owned()).await;
    item.unwrap().map(|item| item.value)
}

fn a_value_that_memory_keeps_for_a_time_goes(place: &Place) {
    over(place, async |store| {
        let day = Duration::from_secs(24 * 3600);
        for (key, ttl) in [
            ("for ever", None),
            ("a day", Some(day)),
            ("gone", Some(Duration::ZERO)),
        ] {
            store.put_item(put(key, value!(key), ttl)).await.unwrap();
        }
        assert_eq!(found(store, "for ever").await, Some(value!("for ever")));
        assert_eq!(found(store, "a day").await, Some(value!("a day")));
        assert_eq!(found(store, "gone").await, None);
        // What has gone is made anew, and no longer goes.
        store.put_item(put("gone", value!(1), None)).await.unwrap();
        assert_eq!(found(store, "gone").await, Some(value!(1)));
        // A time beyond all times is for ever.
        let always = put("always", value!(2), Some(Duration::MAX));
        store.put_item(always).await.unwrap();
        assert_eq!(found(store, "always").await, Some(value!(2)));
        let item = store.item(vec!["n".to_owned()], "a day".to_owned()).await;
        assert_eq!(item.unwrap().unwrap().ttl, Some(day));
    });
}

fn a_put_keeps_the_time_an_item_was_made(place: &Place) {
    over(place, async |store| {
        let item = async || {
            let found = store.item(vec!["n".to_owned()], "k".to_owned()).await;
            found.unwrap().unwrap()
        };
        store.put_item(put("k", value!(1), None)).await.unwrap();
        let first = item().await;
        assert_eq!(first.created_at, first.updated_at);
        store.put_item(put("k", value!(2), None)).await.unwrap();
        let second = item().await;
        assert_eq!(second.created_at, first.created_at);
        assert!(second.updated_at > first.updated_at);
        let gone = store.delete_item(vec!["n".to_owned()], "k".to_owned());
        assert!(gone.await.unwrap());
        let gone = store.delete_item(vec!["n".to_owned()], "k".to_owned());
        assert!(!gone.await.unwrap());
    });
}

fn names_of_any_characters_are_kept_apart(place: &Place) {
    over(place, async |store| {
        let names = ["a", "a\0", "A", "\u{1a}0", "\",\"", "é", "e\u{301}"];
        let labels = |name: &str| vec![name.to_owned(), "x".to_owned()];
        for (number, name) in names.iter().enumerate() {
            for namespace in [labels(name), vec![format!("{name}\",\"x")]] {
                let value = value!([i64::try_from(number).unwrap(), namespace.len() as i64]);
                let key = (*name).to_owned();
                let put = Put {
                    namespace,
                    key,
                    value,
                    ttl: None,
                };
                store.put_item(put).await.unwrap();
            }
        }
        for (number, name) in names.iter().enumerate() {
            let item = store.item(labels(name), (*name).to_owned()).await;
            let value = item.unwrap().unwrap().value;
            assert_eq!(
                value,
                value!([i64::try_from(number).unwrap(), 2]),
                "{name:?}"
            );
        }
    });
}
