//! Tests of the differences between two states.

use proptest::prelude::*;

use super::*;
use crate::value;

type Item = (Option<String>, u8);

fn id(item: &Item) -> Option<&str> {
    item.0.as_deref()
}

/// Lists in which ids do not repeat, as messages have them.
fn list() -> impl Strategy<Value = Vec<Item>> {
    let items = proptest::collection::btree_map("[a-f]", 0..3_u8, 0..6);
    items
        .prop_map(|map| map.into_iter().map(|(id, n)| (Some(id), n)).collect())
        .prop_shuffle()
}

fn map() -> impl Strategy<Value = Map> {
    let values = proptest::collection::btree_map("[a-e]", 0..3_i64, 0..5);
    values.prop_map(|map| map.into_iter().map(|(k, n)| (k.into(), n.into())).collect())
}

proptest! {
    #[test]
    fn a_list_with_its_difference_to_another_has_what_the_other_has(from in list(), to in list()) {
        let found = diff_lists(&from, &to, id);
        let mut made: Vec<Item> = from
            .iter()
            .filter(|one| !found.removed.contains(one))
            .map(|one| {
                let change = found.changed.iter().find(|(old, _)| old == &one);
                change.map_or_else(|| one.clone(), |(_, new)| (*new).clone())
            })
            .chain(found.added.iter().map(|one| (*one).clone()))
            .collect();
        let mut wanted = to.clone();
        made.sort();
        wanted.sort();
        prop_assert_eq!(made, wanted);
    }

    #[test]
    fn differences_turn_around_with_their_sides(from in list(), to in list()) {
        let there = diff_lists(&from, &to, id);
        let back = diff_lists(&to, &from, id);
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.removed, &back.added);
        let mut turned: Vec<_> = back.changed.iter().map(|(a, b)| (*b, *a)).collect();
        let mut changed = there.changed;
        turned.sort();
        changed.sort();
        prop_assert_eq!(changed, turned);
        let same = diff_lists(&from, &from, id);
        prop_assert!(same.added.is_empty() && same.removed.is_empty() && same.changed.is_empty());
    }

    #[test]
    fn channels_with_their_difference_to_others_are_the_others(from in map(), to in map()) {
        let found = diff_channels(&from, &to, &[]);
        let mut made = from.clone();
        made.retain(|name, _| !found.removed.contains_key(name));
        made.extend(found.added.iter().map(|(k, v)| (k.clone(), v.clone())));
        for (name, pair) in found.changed.iter() {
            prop_assert_eq!(&pair["from"], from.get(name).unwrap());
            made.insert(name.clone(), pair["to"].clone());
        }
        made.sort_keys();
        let mut wanted = to.clone();
        wanted.sort_keys();
        prop_assert_eq!(made, wanted);
        let back = diff_channels(&to, &from, &[]);
        prop_assert_eq!(found.added, back.removed);
        prop_assert_eq!(found.removed, back.added);
    }

    #[test]
    fn of_some_channels_only_the_change_is_told(from in map(), to in map()) {
        let found = diff_channels(&from, &to, &["a"]);
        prop_assert!(!found.added.contains_key("a") && !found.removed.contains_key("a"));
        let said = found.changed.get("a").cloned();
        let told = (from.get("a") != to.get("a")).then(|| value!({"from": null, "to": null}));
        prop_assert_eq!(said, told);
    }
}

#[test]
fn the_last_of_equal_ids_counts_and_things_without_id_are_what_they_are() {
    let item = |id: &str, n: u8| ((!id.is_empty()).then(|| id.to_owned()), n);
    let from = [item("a", 1), item("a", 2), item("", 7), item("", 8)];
    let to = [item("a", 2), item("", 8), item("", 9)];
    let found = diff_lists(&from, &to, id);
    assert_eq!(found.removed, [&item("", 7)]);
    assert_eq!(found.added, [&item("", 9)]);
    assert!(found.changed.is_empty());
}

#[test]
fn an_empty_conversation_is_as_good_as_none() {
    let none = Map::new();
    let empty = value!({"messages": []}).as_map().unwrap().clone();
    assert_eq!(
        diff_channels(&none, &empty, &["messages"]),
        ChannelDiff::default()
    );
    assert_eq!(
        diff_channels(&empty, &none, &["messages"]),
        ChannelDiff::default()
    );
}
