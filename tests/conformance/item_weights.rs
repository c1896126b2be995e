//! What items of long-term memory weigh before they are read: both storages say the same and take as much memory.

use std::sync::Arc;

use backstitch::{
    internals::encode,
    store::{
        Put,
        embed::{Vector, Vectors},
        filter::Filter,
        namespace::{Bound, Range},
        rank::Nearest,
        search::{Found, Search},
    },
    value,
    value::Value,
};
use test_support::{
    on_both_storages,
    place::{Place, block_on},
};

use crate::memory::{Clocked, Counted};

on_both_storages!(
    items_weigh_a_multiple_of_their_bytes,
    a_search_counts_what_items_weigh,
    a_search_has_memory_for_an_item_above_what_is_read_at_once,
    a_search_by_meaning_has_memory_for_the_values_that_it_compares,
);

/// So many items have so many bytes and 9: of the format, the kind of the map, its length, two of its key, and four of
/// the kind and the length of the list.
fn nulls(count: usize) -> Vec<u8> {
    encode(&value!({"t": Value::list(vec![Value::Null; count])}))
}

/// Of 1009 bytes with the tag `b40`.
const SMALL: u64 = 40_360;

/// Of 30,009 bytes with the tag `b40`: more than is read at once, which is 1,048,576.
const LARGE: u64 = 1_200_360;

/// Stores an item of an owner, with a vector.
async fn put(clocked: &Clocked, owner: &str, key: &str, (tag, bytes): (&str, Vec<u8>)) {
    let vector = Vector {
        path: "text".into(),
        part: 0,
        bytes: 1.0_f32.to_le_bytes().to_vec(),
    };
    let put = Put {
        owner: owner.into(),
        namespace: vec!["n".to_owned()],
        key: key.to_owned(),
        tag: tag.into(),
        bytes,
        ttl: None,
        vectors: Some(Vectors {
            model: "m".into(),
            all: vec![vector],
        }),
    };
    assert!(clocked.store.put_item(put, 100).await.unwrap());
}

/// Everything of an owner.
fn ranges(owner: &str) -> Vec<Range> {
    vec![Range {
        owner: owner.into(),
        from: Bound::Before(vec![]),
        to: Bound::Behind(vec![]),
    }]
}

/// A filter that every item passes, so that values are compared.
fn passing() -> Filter {
    let other = value!({"other": {"$ne": 1}});
    Filter::read(other.as_map().unwrap()).unwrap()
}

fn search(owner: &str, filter: &Filter, memory: &Arc<Counted>) -> Search {
    Search {
        ranges: ranges(owner),
        filter: filter.clone(),
        limit: 10,
        offset: 0,
        scan_rows: 100,
        scan_bytes: usize::MAX,
        page_bytes: usize::MAX,
        memory: Some(memory.clone()),
    }
}

fn nearest(owner: &str, filter: &Filter, memory: &Arc<Counted>) -> Nearest {
    Nearest {
        ranges: ranges(owner),
        filter: filter.clone(),
        model: "m".into(),
        vector: [1.0].into(),
        limit: 10,
        offset: 0,
        scan_rows: 100,
        scan_bytes: usize::MAX,
        page_bytes: usize::MAX,
        memory: Some(memory.clone()),
    }
}

fn is_page(found: &Found, count: usize) -> bool {
    matches!(found, Found::Items(items) if items.len() == count)
}

fn items_weigh_a_multiple_of_their_bytes(place: &Place) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        for (tag, weight) in [("b", 1_009), ("b40", SMALL), ("json12", 12_108)] {
            put(&clocked, "ann", tag, (tag, nulls(1_000))).await;
            let namespace = vec!["n".to_owned()];
            let found = clocked
                .store
                .item_weight("ann".into(), namespace, tag.into());
            assert_eq!(found.await.unwrap(), Some(weight), "{tag}");
        }
        let namespace = vec!["n".to_owned()];
        let none = clocked
            .store
            .item_weight("bob".into(), namespace, "b".into());
        assert_eq!(none.await.unwrap(), None);
    });
}

fn a_search_counts_what_items_weigh(place: &Place) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        for key in ["1", "2", "3"] {
            put(&clocked, "ann", key, ("b40", nulls(1_000))).await;
        }
        let all = 3 * SMALL;
        let bytes = usize::try_from(all).unwrap();
        for filter in [Filter::default(), passing()] {
            let memory = Counted::new(all);
            let exact = Search {
                scan_bytes: bytes,
                page_bytes: bytes,
                ..search("ann", &filter, &memory)
            };
            let found = clocked.store.search_items(exact.clone()).await.unwrap();
            assert!(is_page(&found, 3), "{found:?}");
            assert_eq!(memory.peak(), Some(all));
            let read = Search {
                scan_bytes: bytes - 1,
                ..exact.clone()
            };
            let found = clocked.store.search_items(read).await.unwrap();
            assert_eq!(found, Found::TooMuchToRead);
            let returned = Search {
                page_bytes: bytes - 1,
                ..exact
            };
            let found = clocked.store.search_items(returned).await.unwrap();
            assert_eq!(found, Found::TooMuchToReturn);
            let less = search("ann", &filter, &Counted::new(all - 1));
            let found = clocked.store.search_items(less).await.unwrap();
            assert_eq!(found, Found::NoMemory);
        }
    });
}

fn a_search_has_memory_for_an_item_above_what_is_read_at_once(place: &Place) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        put(&clocked, "ann", "large", ("b40", nulls(30_000))).await;
        for filter in [Filter::default(), passing()] {
            let memory = Counted::new(LARGE);
            let found = clocked.store.search_items(search("ann", &filter, &memory));
            let found = found.await.unwrap();
            assert!(is_page(&found, 1), "{found:?}");
            assert_eq!(memory.peak(), Some(LARGE));
            let less = search("ann", &filter, &Counted::new(LARGE - 1));
            let found = clocked.store.search_items(less).await.unwrap();
            assert_eq!(found, Found::NoMemory);
        }
    });
}

fn a_search_by_meaning_has_memory_for_the_values_that_it_compares(place: &Place) {
    block_on(async {
        let clocked = Clocked::open(place).await;
        put(&clocked, "ann", "large", ("b40", nulls(30_000))).await;
        // What the value weighs above what is read at once, before it is known whether it is returned.
        let compared = LARGE - 1_048_576;
        let memory = Counted::new(LARGE);
        let found = clocked
            .store
            .nearest_items(nearest("ann", &passing(), &memory));
        let found = found.await.unwrap();
        assert!(is_page(&found, 1), "{found:?}");
        assert_eq!(memory.peak(), Some(LARGE));
        let taken = memory.taken.lock().clone();
        assert!(taken.contains(&compared), "{taken:?}");
        for most in [compared - 1, LARGE - 1] {
            let memory = Counted::new(most);
            let less = nearest("ann", &passing(), &memory);
            let found = clocked.store.nearest_items(less).await.unwrap();
            assert_eq!(found, Found::NoMemory, "{most}");
        }
        let returned = Nearest {
            page_bytes: usize::try_from(LARGE - 1).unwrap(),
            ..nearest("ann", &passing(), &memory)
        };
        let found = clocked.store.nearest_items(returned).await.unwrap();
        assert_eq!(found, Found::TooMuchToReturn);
        // Where nothing is compared, no value is read for that.
        let memory = Counted::new(LARGE);
        let found = clocked
            .store
            .nearest_items(nearest("ann", &Filter::default(), &memory));
        assert!(is_page(&found.await.unwrap(), 1));
        let taken = memory.taken.lock().clone();
        assert!(!taken.contains(&compared), "{taken:?}");
        assert_eq!(memory.peak(), Some(LARGE));
    });
}
