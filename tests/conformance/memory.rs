//! Items of long-term memory, in both storages.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use backstitch::{
    storage,
    store::{Index, Item, Limits, Service, Store},
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
    items_of_principals_are_kept_apart,
    a_search_reads_and_returns_no_more_than_it_may,
    a_search_takes_memory_before_it_reads,
    many_namespaces_are_listed_by_depth,
);

/// A storage whose clock a test moves: what has an end comes nearer to it.
pub(crate) struct Clocked {
    pub store: Arc<dyn Store>,
    url: Option<String>,
    folder: tempfile::TempDir,
}

impl Clocked {
    pub(crate) async fn open(place: &Place) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = match place.url() {
            Some(url) => {
                let options = storage::postgres::Options::new(url);
                Arc::new(storage::postgres::Store::connect(options).await.unwrap())
            }
            None => {
                let path = folder.path().to_owned();
                let synchronous_off = true;
                let options = storage::sqlite::Options {
                    path,
                    synchronous_off,
                };
                Arc::new(storage::sqlite::Store::open(options).unwrap())
            }
        };
        Self {
            store,
            url: place.url().map(str::to_owned),
            folder,
        }
    }

    pub(crate) async fn execute(&self, postgres: &str, sqlite: &str) {
        match &self.url {
            Some(url) => {
                let client = test_support::tables::connect(url).await;
                client.execute(postgres, &[]).await.unwrap();
            }
            None => {
                let file = self.folder.path().join("backstitch.db");
                let db = rusqlite::Connection::open(file).unwrap();
                db.busy_timeout(Duration::from_secs(10)).unwrap();
                db.execute(sqlite, []).unwrap();
            }
        }
    }

    pub(crate) async fn count(&self, text: &str) -> i64 {
        match &self.url {
            Some(url) => {
                let client = test_support::tables::connect(url).await;
                client.query_one(text, &[]).await.unwrap().get(0)
            }
            None => {
                let file = self.folder.path().join("backstitch.db");
                let db = rusqlite::Connection::open(file).unwrap();
                db.query_row(text, [], |row| row.get(0)).unwrap()
            }
        }
    }

    /// Lets so many hours pass.
    pub(crate) async fn pass(&self, hours: u64) {
        let micros = hours * 3_600_000_000;
        self.execute(
            &format!("UPDATE store_items SET expires_at = expires_at - interval '{hours} hours'"),
            &format!("UPDATE store_items SET expires_at = expires_at - {micros}"),
        )
        .await;
    }
}

/// Runs `test` over the memory of a storage.
fn over(place: &Place, test: impl AsyncFnOnce(&Service)) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        let service = Service::new(clocked.store.clone(), Limits::default(), Vec::new(), None);
        test(&service).await;
    });
}

/// No time to live, and the texts that the server is configured for.
const NOTHING: (Option<Duration>, &Index) = (None, &Index::Default);

fn local() -> &'static Arc<str> {
    static LOCAL: LazyLock<Arc<str>> = LazyLock::new(|| "local".into());
    &LOCAL
}

fn names(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

async fn put(service: &Service, key: &str, value: Value, ttl: Option<Duration>) {
    let done = service.put(
        local(),
        names(&["n"]),
        key.to_owned(),
        value,
        (ttl, &Index::Default),
    );
    done.await.unwrap();
}

async fn item(service: &Service, key: &str) -> Option<Item> {
    let found = service.get(local(), names(&["n"]), key.to_owned(), false);
    found.await.unwrap()
}

async fn found(service: &Service, key: &str) -> Option<Value> {
    item(service, key).await.map(|item| item.value)
}

fn a_value_that_memory_keeps_for_a_time_goes(place: &Place) {
    over(place, async |service| {
        let day = Duration::from_secs(24 * 3600);
        for (key, ttl) in [
            ("for ever", None),
            ("a day", Some(day)),
            ("gone", Some(Duration::ZERO)),
        ] {
            put(service, key, value!(key), ttl).await;
        }
        assert_eq!(found(service, "for ever").await, Some(value!("for ever")));
        assert_eq!(found(service, "a day").await, Some(value!("a day")));
        assert_eq!(found(service, "gone").await, None);
        // What has gone cannot be deleted, is made anew, and no longer goes.
        let delete = async || {
            let deleted = service.delete(local(), names(&["n"]), "gone".to_owned());
            deleted.await.unwrap()
        };
        assert!(!delete().await);
        put(service, "gone", value!(1), None).await;
        assert_eq!(found(service, "gone").await, Some(value!(1)));
        assert!(delete().await);
        // A time beyond all times is for ever.
        put(service, "always", value!(2), Some(Duration::MAX)).await;
        assert_eq!(found(service, "always").await, Some(value!(2)));
        assert_eq!(item(service, "a day").await.unwrap().ttl, Some(day));
    });
}

fn a_put_keeps_the_time_an_item_was_made(place: &Place) {
    over(place, async |service| {
        put(service, "k", value!(1), None).await;
        let first = item(service, "k").await.unwrap();
        assert_eq!(first.created_at, first.updated_at);
        put(service, "k", value!(2), None).await;
        let second = item(service, "k").await.unwrap();
        assert_eq!(second.created_at, first.created_at);
        assert!(second.updated_at > first.updated_at);
        let delete = || service.delete(local(), names(&["n"]), "k".to_owned());
        assert!(delete().await.unwrap());
        assert!(!delete().await.unwrap());
    });
}

fn names_of_any_characters_are_kept_apart(place: &Place) {
    over(place, async |service| {
        let all = ["a", "a\0", "A", "\u{1a}0", "\",\"", "é", "e\u{301}"];
        let labels = |name: &str| vec![name.to_owned(), "x".to_owned()];
        for (number, name) in all.iter().enumerate() {
            for namespace in [labels(name), vec![format!("{name}\",\"x")]] {
                let value = value!([i64::try_from(number).unwrap(), namespace.len() as i64]);
                let key = (*name).to_owned();
                let done = service.put(local(), namespace, key, value, NOTHING);
                done.await.unwrap();
            }
        }
        for (number, name) in all.iter().enumerate() {
            let item = service.get(local(), labels(name), (*name).to_owned(), false);
            let value = item.await.unwrap().unwrap().value;
            assert_eq!(
                value,
                value!([i64::try_from(number).unwrap(), 2]),
                "{name:?}"
            );
        }
        let query = backstitch::store::NamespaceQuery {
            limit: 100,
            ..Default::default()
        };
        let mut wanted: Vec<_> = all
            .iter()
            .flat_map(|name| [labels(name), vec![format!("{name}\",\"x")]])
            .collect();
        let mut listed = service.namespaces(local(), query).await.unwrap();
        wanted.sort();
        listed.sort();
        assert_eq!(listed, wanted);
    });
}

fn items_of_principals_are_kept_apart(place: &Place) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        let shared = vec![names(&["common"])];
        let service = Service::new(clocked.store.clone(), Limits::default(), shared, None);
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        for (who, number) in [(&ann, 1), (&bob, 2)] {
            for first in ["a", "common", "z"] {
                let key = "k".to_owned();
                let done = service.put(who, names(&[first]), key, value!(number), NOTHING);
                done.await.unwrap();
            }
        }
        for (who, number) in [(&ann, 1), (&bob, 2)] {
            let query = backstitch::store::ItemQuery {
                limit: 10,
                refresh: true,
                ..Default::default()
            };
            let items = service.search(who, query).await.unwrap();
            let seen: Vec<_> = items
                .iter()
                .map(|item| (&*item.namespace[0], item.value.decode().unwrap()))
                .collect();
            let wanted = [
                ("a", value!(number)),
                ("common", value!(2)),
                ("z", value!(number)),
            ];
            assert_eq!(seen, wanted);
        }
        let deleted = service.delete(&ann, names(&["common"]), "k".to_owned());
        assert!(deleted.await.unwrap());
        let left = service.get(&bob, names(&["common"]), "k".to_owned(), true);
        assert!(left.await.unwrap().is_none());
        let deleted = service.delete(&ann, names(&["a"]), "k".to_owned());
        assert!(deleted.await.unwrap());
        let left = service.get(&bob, names(&["a"]), "k".to_owned(), true);
        assert!(left.await.unwrap().is_some());
    });
}

/// Memory of which there is so much, and what was taken of it.
#[derive(Debug)]
pub(crate) struct Counted {
    most: u64,
    pub(crate) taken: parking_lot::Mutex<Vec<u64>>,
}

impl Counted {
    pub(crate) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Default::default(),
        })
    }

    /// The most that was taken at a time.
    pub(crate) fn peak(&self) -> Option<u64> {
        self.taken.lock().iter().max().copied()
    }
}

impl backstitch::store::memory::ItemMemory for Counted {
    fn resize(&self, weight: u64) -> bool {
        self.taken.lock().push(weight);
        weight <= self.most
    }
}

fn a_search_takes_memory_before_it_reads(place: &Place) {
    use backstitch::store::{Error, ItemQuery, filter::Filter};
    block_on(async {
        let clocked = Clocked::open(place).await;
        let service = &Service::new(clocked.store.clone(), Limits::default(), Vec::new(), None);
        for number in 0..6 {
            let value = value!({"text": "x".repeat(600_000).as_str()});
            let put = service.put(local(), names(&["n"]), number.to_string(), value, NOTHING);
            put.await.unwrap();
        }
        let other = value!({"other": {"$ne": 1}});
        let other = Filter::read(other.as_map().unwrap()).unwrap();
        for filter in [Filter::default(), other] {
            let search = async |most| {
                let memory = Counted::new(most);
                let query = ItemQuery {
                    prefix: names(&["n"]),
                    filter: filter.clone(),
                    limit: 10,
                    memory: Some(memory.clone()),
                    ..ItemQuery::default()
                };
                let found = service.search(local(), query).await;
                (found, std::mem::take(&mut *memory.taken.lock()))
            };
            let (found, taken) = search(u64::MAX).await;
            assert_eq!(found.unwrap().len(), 6);
            // As much as there is then, and what may be read beside it.
            let most = *taken.iter().max().unwrap();
            assert!((3_600_000..5 << 20).contains(&most), "{taken:?}");
            assert!(taken[0] <= 1 << 20, "{taken:?}");
            let (found, taken) = search(2_000_000).await;
            assert!(matches!(found.unwrap_err(), Error::NoMemory));
            assert!(taken.iter().rev().skip(1).all(|taken| *taken <= 2_000_000));
        }
    });
}

fn a_search_reads_and_returns_no_more_than_it_may(place: &Place) {
    use backstitch::store::{Error, ItemQuery, NamespaceQuery, filter::Filter};
    block_on(async {
        let clocked = Clocked::open(place).await;
        let limits = Limits {
            item_bytes: 1000,
            items: 1000,
            scan_rows: 40,
            scan_bytes: 8000,
            page_bytes: 2000,
        };
        let service = &Service::new(clocked.store.clone(), limits, Vec::new(), None);
        let put = async |namespace: &[&str], key: String, size: usize| {
            let value = value!({"n": 1, "text": "x".repeat(size).as_str()});
            service
                .put(local(), names(namespace), key, value, NOTHING)
                .await
        };
        let refused = put(&["n"], "k".into(), 1000).await.unwrap_err();
        assert!(matches!(refused, Error::TooLarge { limit: 1000, .. }));
        for number in 0..50 {
            let key = format!("{number:02}");
            put(&["small"], key.clone(), 1).await.unwrap();
            put(&["large"], key, 800).await.unwrap();
            put(&["many", &format!("{number}")], "k".into(), 1)
                .await
                .unwrap();
        }
        let search = async |first: &str, wanted: i64, limit: usize, offset: usize| {
            let query = ItemQuery {
                prefix: names(&[first]),
                filter: Filter::read(value!({"n": wanted}).as_map().unwrap()).unwrap(),
                limit,
                offset,
                ..ItemQuery::default()
            };
            let found = service.search(local(), query).await;
            found.map(|items| items.len())
        };
        assert_eq!(search("small", 1, 30, 10).await.unwrap(), 30);
        let far = search("small", 1, 30, 11).await.unwrap_err();
        assert!(matches!(far, Error::TooMuchToRead { .. }), "{far}");
        let none = search("small", 2, 1, 0).await.unwrap_err();
        assert!(matches!(none, Error::TooMuchToRead { .. }), "{none}");
        let none = search("large", 2, 1, 0).await.unwrap_err();
        assert!(matches!(none, Error::TooMuchToRead { .. }), "{none}");
        assert_eq!(search("large", 1, 2, 0).await.unwrap(), 2);
        let large = search("large", 1, 3, 0).await.unwrap_err();
        assert!(matches!(large, Error::TooMuchToReturn { .. }), "{large}");
        let unfiltered = |offset| {
            let query = ItemQuery {
                prefix: names(&["large"]),
                limit: 1,
                offset,
                ..Default::default()
            };
            async move { service.search(local(), query).await }
        };
        // What is passed over is not read, but counts.
        assert_eq!(unfiltered(39).await.unwrap()[0].key, "39");
        assert!(unfiltered(40).await.is_err());
        let list = |suffix: &str, limit| {
            let query = NamespaceQuery {
                suffix: names(&[suffix]),
                limit,
                ..Default::default()
            };
            async move { service.namespaces(local(), query).await }
        };
        assert_eq!(list("*", 40).await.unwrap().len(), 40);
        assert!(list("nothing", 1).await.is_err());
    });
}

fn many_namespaces_are_listed_by_depth(place: &Place) {
    over(place, async |service| {
        for first in 0..3 {
            for second in 0..800 {
                let namespace = vec![format!("f{first}"), format!("s{second:03}")];
                let done = service.put(local(), namespace, "k".into(), value!(1), NOTHING);
                done.await.unwrap();
            }
        }
        let list = |max_depth, offset| {
            let query = backstitch::store::NamespaceQuery {
                max_depth,
                offset,
                limit: 1000,
                ..Default::default()
            };
            async move { service.namespaces(local(), query).await.unwrap() }
        };
        let firsts = [names(&["f0"]), names(&["f1"]), names(&["f2"])];
        assert_eq!(list(Some(1), 0).await, firsts);
        let whole = list(None, 1500).await;
        assert_eq!(whole.len(), 900);
        assert_eq!(whole[0], names(&["f1", "s700"]));
        assert_eq!(whole[899], names(&["f2", "s799"]));
        assert_eq!(list(Some(2), 1500).await, whole);
    });
}
