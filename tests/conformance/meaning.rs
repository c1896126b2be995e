//! Search of long-term memory by meaning, in both storages, with a model that counts letters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use backstitch::llm::Embeddings;
use backstitch::store::field::Field;
use backstitch::store::filter::Filter;
use backstitch::store::{Embedder, Error, Index, ItemQuery, Limits, Service};
use backstitch::value;
use backstitch::value::Value;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};

use crate::memory::Clocked;

on_both_storages!(
    the_nearest_items_come_first,
    an_item_is_found_by_its_best_text,
    only_what_passes_the_filter_is_ranked,
    vectors_go_with_their_item_and_are_replaced_with_it,
    vectors_of_another_model_do_not_count,
    principals_find_their_own_items_and_shared_ones,
    a_search_by_meaning_reads_and_returns_no_more_than_it_may,
    the_value_of_an_item_is_read_once_however_many_texts_it_has,
    a_model_that_fails_stores_nothing,
);

/// Counts the letters a, b and c. The first text with an x fails.
struct Letters {
    name: &'static str,
    calls: AtomicUsize,
}

impl Letters {
    fn named(name: &'static str) -> Arc<Self> {
        let calls = AtomicUsize::new(0);
        Arc::new(Self { name, calls })
    }
}

#[async_trait]
impl Embeddings for Letters {
    fn name(&self) -> &str {
        self.name
    }

    async fn embed(&self, texts: Vec<String>) -> anyhow::Result<Vec<Vec<f32>>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let vector = |text: &String| {
            anyhow::ensure!(!text.contains('x'), "there is an x");
            let count = |letter| text.matches(letter).count() as f32 + 0.001;
            Ok(vec![count('a'), count('b'), count('c')])
        };
        texts.iter().map(vector).collect()
    }
}

fn names(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

/// A memory whose items are found by their field `text`.
fn memory(clocked: &Clocked, model: &Arc<Letters>, limits: Limits) -> Service {
    let fields = vec![Field::parse("text").unwrap()];
    let embedder = Embedder::new(model.clone(), fields);
    let shared = vec![names(&["common"])];
    Service::new(clocked.store.clone(), limits, shared, Some(embedder))
}

/// Runs `test` over a memory with the model.
fn over(place: &Place, limits: Limits, test: impl AsyncFnOnce(&Clocked, &Service)) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        let service = memory(&clocked, &Letters::named("letters"), limits);
        test(&clocked, &service).await;
    });
}

fn me() -> &'static Arc<str> {
    static ME: LazyLock<Arc<str>> = LazyLock::new(|| "me".into());
    &ME
}

async fn put(service: &Service, namespace: &[&str], key: &str, value: Value) {
    let how = (None, &Index::Default);
    let done = service.put(me(), names(namespace), key.into(), value, how);
    done.await.unwrap();
}

fn query(text: &str) -> ItemQuery {
    ItemQuery {
        text: Some(text.into()),
        limit: 10,
        ..ItemQuery::default()
    }
}

async fn keys(service: &Service, query: ItemQuery) -> Vec<String> {
    let found = service.search(me(), query).await.unwrap();
    let scores: Vec<_> = found.iter().map(|item| item.score.unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    found.into_iter().map(|item| item.key).collect()
}

fn the_nearest_items_come_first(place: &Place) {
    over(place, Limits::default(), async |_, service| {
        for (namespace, text) in [
            (&["n"], "aaa"),
            (&["n"], "aab"),
            (&["n"], "bbb"),
            (&["m"], "a"),
        ] {
            put(service, namespace, text, value!({"text": text})).await;
        }
        put(service, &["n"], "without", value!({"other": "aaa"})).await;
        assert_eq!(keys(service, query("a")).await, ["a", "aaa", "aab", "bbb"]);
        let below = |offset, limit| ItemQuery {
            prefix: names(&["n"]),
            offset,
            limit,
            ..query("b")
        };
        assert_eq!(keys(service, below(0, 2)).await, ["bbb", "aab"]);
        assert_eq!(keys(service, below(1, 5)).await, ["aab", "aaa"]);
        assert!(keys(service, below(3, 5)).await.is_empty());
        // Nothing to compare with: the order of names.
        let all = service.search(me(), query(" ")).await.unwrap();
        assert!(all.len() == 5 && all.iter().all(|item| item.score.is_none()));
    });
}

fn an_item_is_found_by_its_best_text(place: &Place) {
    over(place, Limits::default(), async |_, service| {
        let value = value!({"text": "aaa", "parts": [{"t": "bbb"}, {"t": "ccc"}]});
        for (key, index) in [
            ("default", Index::Default),
            ("off", Index::Off),
            (
                "parts",
                Index::Fields(vec![Field::parse("parts[*].t").unwrap()]),
            ),
        ] {
            let (key, how) = (key.to_owned(), (None, &index));
            let done = service.put(me(), names(&["n"]), key, value.clone(), how);
            done.await.unwrap();
        }
        assert_eq!(keys(service, query("a")).await, ["default", "parts"]);
        assert_eq!(keys(service, query("c")).await, ["parts", "default"]);
        let many: Vec<Value> = (0..101).map(|_| value!("a")).collect();
        let index = Index::Fields(vec![Field::parse("text[*]").unwrap()]);
        let value = value!({"text": many});
        let refused = service.put(me(), names(&["n"]), "many".into(), value, (None, &index));
        assert!(matches!(refused.await, Err(Error::TooManyTexts { .. })));
    });
}

fn only_what_passes_the_filter_is_ranked(place: &Place) {
    over(place, Limits::default(), async |_, service| {
        for number in 0..100 {
            let key = format!("{number:02}");
            let text = if number % 2 == 0 { "aaa" } else { "aab" };
            let value = value!({"text": text, "kind": (number % 3)});
            put(service, &["n"], &key, value).await;
        }
        let filter = Filter::read(value!({"kind": 1}).as_map().unwrap()).unwrap();
        let nearest = keys(
            service,
            ItemQuery {
                filter,
                limit: 3,
                ..query("b")
            },
        )
        .await;
        assert_eq!(nearest, ["01", "07", "13"]);
    });
}

fn vectors_go_with_their_item_and_are_replaced_with_it(place: &Place) {
    over(place, Limits::default(), async |clocked, service| {
        put(service, &["n"], "k", value!({"text": "aaa"})).await;
        put(service, &["n"], "l", value!({"text": "aab"})).await;
        put(service, &["n"], "k", value!({"text": "ccc"})).await;
        assert_eq!(keys(service, query("a")).await, ["l", "k"]);
        // A server without a model writes the item: what it was found by is gone.
        let plain = Service::new(clocked.store.clone(), Limits::default(), vec![], None);
        let how = (Some(Duration::from_secs(60)), &Index::Default);
        let value = value!({"text": "aaa"});
        let done = plain.put(me(), names(&["n"]), "k".into(), value, how);
        done.await.unwrap();
        assert_eq!(keys(service, query("a")).await, ["l"]);
        put(service, &["n"], "k", value!({"text": "aaa"})).await;
        assert!(
            service
                .delete(me(), names(&["n"]), "k".into())
                .await
                .unwrap()
        );
        let how = (Some(Duration::from_secs(60)), &Index::Default);
        let value = value!({"text": "aaa"});
        let done = service.put(me(), names(&["n"]), "m".into(), value, how);
        done.await.unwrap();
        clocked.pass(1).await;
        assert_eq!(
            keys(service, query("a")).await,
            ["l"],
            "the other one has expired"
        );
        assert_eq!(clocked.store.sweep_items(10).await.unwrap(), 1);
        let left = clocked.count("SELECT count(*) FROM store_vectors").await;
        assert_eq!(left, 1, "the vector of `l` alone is left");
    });
}

fn vectors_of_another_model_do_not_count(place: &Place) {
    over(place, Limits::default(), async |clocked, service| {
        put(service, &["n"], "old", value!({"text": "aaa"})).await;
        let newer = memory(clocked, &Letters::named("newer"), Limits::default());
        put(&newer, &["n"], "new", value!({"text": "bbb"})).await;
        assert_eq!(keys(&newer, query("a")).await, ["new"]);
        assert_eq!(keys(service, query("a")).await, ["old"]);
    });
}

fn principals_find_their_own_items_and_shared_ones(place: &Place) {
    over(place, Limits::default(), async |_, service| {
        put(service, &["a"], "mine", value!({"text": "aab"})).await;
        let other: Arc<str> = "other".into();
        for first in ["a", "common"] {
            let (value, how) = (value!({"text": "aaa"}), (None, &Index::Default));
            let done = service.put(&other, names(&[first]), first.into(), value, how);
            done.await.unwrap();
        }
        assert_eq!(keys(service, query("a")).await, ["common", "mine"]);
    });
}

fn a_search_by_meaning_reads_and_returns_no_more_than_it_may(place: &Place) {
    let limits = Limits {
        scan_rows: 20,
        page_bytes: 1000,
        ..Limits::default()
    };
    over(place, limits, async |_, service| {
        for number in 0..21 {
            let text = format!("a{}", "-".repeat(400));
            let namespace = if number < 20 { "few" } else { "more" };
            let key = format!("{number:02}");
            put(service, &[namespace], &key, value!({"text": text})).await;
        }
        let few = |limit| ItemQuery {
            prefix: names(&["few"]),
            limit,
            ..query("a")
        };
        assert_eq!(keys(service, few(2)).await, ["00", "01"]);
        let large = service.search(me(), few(3)).await.unwrap_err();
        assert!(matches!(large, Error::TooMuchToReturn { .. }), "{large}");
        let all = service
            .search(
                me(),
                ItemQuery {
                    limit: 1,
                    ..query("a")
                },
            )
            .await;
        assert!(matches!(all.unwrap_err(), Error::TooMuchToRead { .. }));
    });
}

fn the_value_of_an_item_is_read_once_however_many_texts_it_has(place: &Place) {
    let limits = Limits {
        scan_bytes: 100_000,
        ..Limits::default()
    };
    over(place, limits, async |_, service| {
        // Together more vectors than are read at once, and each item on either side of such a border.
        for number in 0..9 {
            let last = if number == 4 { "aaa" } else { "aab" };
            let text: Vec<Value> = (0..50).map(|_| value!("c")).chain([value!(last)]).collect();
            let kind = number % 2;
            let value = value!({"text": text, "kind": kind, "rest": ("-".repeat(9_000))});
            let index = Index::Fields(vec![Field::parse("text[*]").unwrap()]);
            let key = format!("{number}");
            let done = service.put(me(), names(&["n"]), key, value, (None, &index));
            done.await.unwrap();
        }
        let of = |kind: i64| ItemQuery {
            filter: Filter::read(value!({"kind": kind}).as_map().unwrap()).unwrap(),
            ..query("a")
        };
        assert_eq!(keys(service, of(0)).await, ["4", "0", "2", "6", "8"]);
        assert_eq!(keys(service, of(1)).await, ["1", "3", "5", "7"]);
    });
}

fn a_model_that_fails_stores_nothing(place: &Place) {
    over(place, Limits::default(), async |_, service| {
        let (value, how) = (value!({"text": "x"}), (None, &Index::Default));
        let done = service.put(me(), names(&["n"]), "k".into(), value, how);
        assert!(matches!(done.await, Err(Error::Embedding(_))));
        let left = service.get(me(), names(&["n"]), "k".into(), false).await;
        assert!(left.unwrap().is_none());
        let found = service.search(me(), query("x")).await;
        assert!(matches!(found, Err(Error::Embedding(_))));
    });
}
