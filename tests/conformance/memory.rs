//! Items of long-term memory, in both storages.

use std::time::Duration;

use backstitch::{
    storage,
    store::{Put, Store},
    value,
    value::Value,
};
use test_support::{
    on_both_storages,
    place::{Place, block_on},
};

on_both_storages!(
    a_value_that_memory_keeps_for_a_time_goes,
    a_put_keeps_the_time_an_item_was_made,
    names_of_any_characters_are_kept_apart,
);

/// Runs `test` over the items of a storage.
fn over(place: &Place, test: impl AsyncFnOnce(&dyn Store)) {
    block_on(async {
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
