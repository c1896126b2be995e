//! Tests of channels: every kind against the writes of a superstep.

use proptest::prelude::*;

use super::*;
use crate::value;
use crate::value::samples::any_value;

fn channel(kind: Kind) -> Channel {
    Channel::new(&kind)
}

fn names(names: &[&str]) -> Arc<[Arc<str>]> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn every_kind() -> Vec<Kind> {
    vec![
        Kind::Last,
        Kind::Any,
        Kind::Ephemeral { guard: true },
        Kind::Ephemeral { guard: false },
        Kind::Untracked { guard: true },
        Kind::Untracked { guard: false },
        Kind::Aggregate(Reducer::append()),
        Kind::Topic { accumulate: true },
        Kind::Topic { accumulate: false },
        Kind::Barrier(names(&["a", "b"])),
        Kind::LastAfterFinish,
        Kind::BarrierAfterFinish(names(&["a", "b"])),
    ]
}

#[test]
fn a_last_value_takes_one_write_and_keeps_it() {
    let mut c = channel(Kind::Last);
    assert_eq!(c.get(), None);
    assert!(c.update(&[1.into()]).unwrap());
    assert!(!c.update(&[]).unwrap());
    assert_eq!(c.get(), Some(&value!(1)));
    let error = c.update(&[1.into(), 2.into()]).unwrap_err();
    assert_eq!(error, Error::Concurrent(2));
    assert_eq!(error.class(), "InvalidUpdateError");
    assert!(
        error
            .to_string()
            .contains("Can receive only one value per step")
    );
}

#[test]
fn any_value_takes_the_last_write_and_is_cleared_by_a_step_without_one() {
    let mut c = channel(Kind::Any);
    assert!(c.update(&["a".into(), "b".into()]).unwrap());
    assert_eq!(c.get(), Some(&value!("b")));
    assert!(c.update(&[]).unwrap());
    assert_eq!(c.get(), None);
    assert!(!c.update(&[]).unwrap());
}

#[test]
fn an_ephemeral_value_lives_for_one_step() {
    let mut c = channel(Kind::Ephemeral { guard: true });
    assert!(c.update(&[Value::Null]).unwrap());
    assert_eq!(c.get(), Some(&Value::Null));
    assert!(c.update(&[]).unwrap());
    assert!(!c.is_available());
    assert_eq!(c.update(&[1.into(), 2.into()]), Err(Error::Concurrent(2)));

    let mut open = channel(Kind::Ephemeral { guard: false });
    assert!(open.update(&[1.into(), 2.into()]).unwrap());
    assert_eq!(open.get(), Some(&value!(2)));
}

#[test]
fn an_untracked_value_is_kept_but_never_stored() {
    let mut c = channel(Kind::Untracked { guard: false });
    assert!(c.update(&[1.into(), 2.into()]).unwrap());
    assert!(!c.update(&[]).unwrap());
    assert_eq!(c.get(), Some(&value!(2)));
    assert_eq!(c.snapshot(), None);
    assert!(
        channel(Kind::Untracked { guard: true })
            .update(&[1.into(), 2.into()])
            .is_err()
    );
}

#[test]
fn aggregates_show_their_initial_value_before_the_first_write() {
    for (reducer, initial) in [
        (Reducer::sum(), value!(0)),
        (Reducer::append(), value!([])),
        (Reducer::concat(), value!("")),
        (Reducer::max(), value!(0)),
        (Reducer::merge(), value!({})),
        (Reducer::union(), value!([])),
        (Reducer::messages(), value!([])),
    ] {
        let c = channel(Kind::Aggregate(reducer));
        assert_eq!(c.get(), Some(&initial));
    }
}

#[test]
fn aggregates_fold_the_writes_of_a_step_from_left_to_right() {
    for (reducer, writes, result) in [
        (
            Reducer::sum(),
            vec![value!(1), value!(2), value!(-5)],
            value!(-2),
        ),
        (Reducer::sum(), vec![value!(1), value!(0.5)], value!(1.5)),
        (
            Reducer::append(),
            vec![value!([1]), value!([]), value!([[2], 3])],
            value!([1, [2], 3]),
        ),
        (
            Reducer::concat(),
            vec![value!("a"), value!("b")],
            value!("ab"),
        ),
        (
            Reducer::max(),
            vec![value!(3), value!(7), value!(5)],
            value!(7),
        ),
        (Reducer::max(), vec![value!(-3), value!(0.5)], value!(0.5)),
        (
            Reducer::merge(),
            vec![value!({"a": {"x": 1}, "b": 1}), value!({"a": {"y": 2}})],
            value!({"a": {"y": 2}, "b": 1}),
        ),
        (
            Reducer::union(),
            vec![value!([1, 2]), value!([2, 3, 3])],
            value!([1, 2, 3]),
        ),
    ] {
        let name = reducer.name().clone();
        let mut c = channel(Kind::Aggregate(reducer));
        assert!(!c.update(&[]).unwrap());
        assert!(c.update(&writes).unwrap());
        assert_eq!(c.get(), Some(&result), "{name}");
    }
}

#[test]
fn a_reducer_refuses_what_it_cannot_combine() {
    for (reducer, write) in [
        (Reducer::sum(), value!("1")),
        (Reducer::append(), value!(1)),
        (Reducer::concat(), value!(1)),
        (Reducer::max(), value!(null)),
        (Reducer::merge(), value!([])),
        (Reducer::union(), value!({})),
    ] {
        let error = channel(Kind::Aggregate(reducer))
            .update(&[write])
            .unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert_eq!(error.class(), "TypeError");
    }
}

#[test]
fn a_sum_beyond_64_bits_is_an_error() {
    let mut c = channel(Kind::Aggregate(Reducer::sum()));
    assert!(c.update(&[i64::MAX.into(), 1.into()]).unwrap());
    assert_eq!(c.get(), Some(&Value::Uint(1 << 63)));
    assert!(matches!(
        c.update(&[u64::MAX.into()]),
        Err(Error::Overflow(..))
    ));
    let mut c = channel(Kind::Aggregate(Reducer::sum()));
    assert!(matches!(
        c.update(&[i64::MIN.into(), (-1).into()]),
        Err(Error::Overflow(..))
    ));
}

#[test]
fn an_overwrite_replaces_and_the_other_writes_of_the_step_are_lost() {
    for form in [
        overwrite(value!(["new"])),
        value!({"type": "__overwrite__", "value": ["new"]}),
    ] {
        let mut c = channel(Kind::Aggregate(Reducer::append()));
        c.update(&[value!(["old"])]).unwrap();
        assert!(
            c.update(&[value!(["before"]), form, value!(["after"])])
                .unwrap()
        );
        assert_eq!(c.get(), Some(&value!(["new"])));
    }
}

#[test]
fn two_overwrites_in_one_step_are_an_error() {
    let mut c = channel(Kind::Aggregate(Reducer::sum()));
    let error = c
        .update(&[overwrite(1.into()), overwrite(2.into())])
        .unwrap_err();
    assert_eq!(error.class(), "InvalidUpdateError");
}

#[test]
fn maps_that_merely_resemble_an_overwrite_are_plain_writes() {
    assert_eq!(as_overwrite(&value!({"__overwrite__": 1, "more": 2})), None);
    assert_eq!(as_overwrite(&value!({"type": "other", "value": 2})), None);
    assert_eq!(as_overwrite(&value!([1])), None);
}

#[test]
fn appending_to_an_unshared_list_copies_nothing() {
    for reducer in [Reducer::append(), Reducer::messages(), Reducer::union()] {
        let mut c = channel(Kind::Aggregate(reducer));
        let seed: Vec<Value> = (0..20)
            .map(|i| value!({"type": "human", "content": "x", "id": format!("{i}")}))
            .collect();
        c.update(&[Value::list(seed)]).unwrap();
        // Room for one more, so that only a copy could move the items.
        let Some(Value::List(list)) = c.snapshot() else {
            panic!("no list")
        };
        let mut roomy = Vec::with_capacity(64);
        roomy.extend_from_slice(&list);
        drop(list);
        let mut c = Channel::restore(c.kind(), Some(Value::list(roomy))).unwrap();
        let before = c.get().unwrap().as_list().unwrap().as_ptr();
        c.update(&[value!([{"type": "ai", "content": "y", "id": "new"}])])
            .unwrap();
        assert_eq!(c.get().unwrap().as_list().unwrap().as_ptr(), before);
        assert_eq!(c.get().unwrap().as_list().unwrap().len(), 21);
    }
}

#[test]
fn a_shared_list_is_left_as_it_was() {
    let mut c = channel(Kind::Aggregate(Reducer::append()));
    c.update(&[value!([1])]).unwrap();
    let before = c.snapshot();
    c.update(&[value!([2])]).unwrap();
    assert_eq!(before, Some(value!([1])));
}

#[test]
fn a_custom_reducer_is_called_with_old_and_update() {
    let last_two = Reducer::custom("last_two", Vec::<Value>::new(), |mut old, update| {
        let items = old.make_list_mut().ok_or(Error::Overwrites)?;
        items.push(update.clone());
        if items.len() > 2 {
            items.remove(0);
        }
        Ok(old)
    });
    let mut c = channel(Kind::Aggregate(last_two));
    c.update(&[1.into(), 2.into(), 3.into()]).unwrap();
    assert_eq!(c.get(), Some(&value!([2, 3])));
}

#[test]
fn a_topic_spreads_lists_one_level_and_is_cleared_unless_it_accumulates() {
    let writes = [value!(1), value!([2, [3]]), value!([])];
    let mut passing = channel(Kind::Topic { accumulate: false });
    let mut growing = channel(Kind::Topic { accumulate: true });
    for c in [&mut passing, &mut growing] {
        assert!(!c.is_available());
        assert!(c.update(&writes).unwrap());
        assert_eq!(c.get(), Some(&value!([1, 2, [3]])));
    }
    assert!(growing.update(&[4.into()]).unwrap());
    assert!(!growing.update(&[]).unwrap());
    assert_eq!(growing.get(), Some(&value!([1, 2, [3], 4])));

    assert!(passing.update(&[4.into()]).unwrap());
    assert_eq!(passing.get(), Some(&value!([4])));
    assert!(passing.update(&[]).unwrap());
    assert_eq!(passing.get(), None);
    assert_eq!(passing.snapshot(), Some(value!([])));
    assert!(!passing.update(&[value!([])]).unwrap());
}

#[test]
fn a_barrier_opens_when_all_have_come_and_is_consumed() {
    let mut c = channel(Kind::Barrier(names(&["b", "a"])));
    assert!(c.update(&["b".into()]).unwrap());
    assert!(!c.update(&["b".into()]).unwrap());
    assert!(!c.is_available());
    assert!(!c.consume());
    assert!(c.update(&["a".into()]).unwrap());
    assert_eq!(c.get(), Some(&Value::Null));
    assert_eq!(c.snapshot(), Some(value!(["a", "b"])));
    assert!(c.consume());
    assert!(!c.is_available());
    assert_eq!(c.snapshot(), Some(value!([])));
}

#[test]
fn a_barrier_refuses_names_it_does_not_wait_for() {
    for kind in [
        Kind::Barrier(names(&["a"])),
        Kind::BarrierAfterFinish(names(&["a"])),
    ] {
        for write in [value!("z"), value!(1)] {
            let error = channel(kind.clone()).update(&[write]).unwrap_err();
            assert_eq!(error.class(), "InvalidUpdateError");
        }
    }
}

#[test]
fn a_deferred_value_shows_only_when_the_run_would_end() {
    let mut c = channel(Kind::LastAfterFinish);
    assert!(!c.finish());
    assert!(c.update(&[1.into(), 2.into()]).unwrap());
    assert!(!c.is_available());
    assert!(!c.consume());
    assert_eq!(c.snapshot(), Some(value!([2, false])));
    assert!(c.finish());
    assert!(!c.finish());
    assert_eq!(c.get(), Some(&value!(2)));
    assert_eq!(c.snapshot(), Some(value!([2, true])));
    assert!(!c.update(&[]).unwrap());
    assert!(c.consume());
    assert_eq!(c.snapshot(), None);
    // A new write has to wait for the next end.
    c.update(&[3.into()]).unwrap();
    assert!(c.finish());
    c.update(&[4.into()]).unwrap();
    assert!(!c.is_available());
}

#[test]
fn a_deferred_barrier_needs_all_names_and_the_end_of_the_run() {
    let mut c = channel(Kind::BarrierAfterFinish(names(&["a", "b"])));
    c.update(&["b".into()]).unwrap();
    assert!(!c.finish());
    c.update(&["a".into()]).unwrap();
    assert!(!c.is_available());
    assert_eq!(c.snapshot(), Some(value!([["a", "b"], false])));
    assert!(c.finish());
    assert!(c.is_available());
    assert!(c.consume());
    assert_eq!(c.snapshot(), Some(value!([[], false])));
}

#[test]
fn only_barriers_and_deferred_channels_are_consumed_or_finished() {
    for kind in every_kind() {
        let writes: &[Value] = match kind {
            Kind::Barrier(_) | Kind::BarrierAfterFinish(_) | Kind::LastAfterFinish => continue,
            Kind::Aggregate(_) => &[value!([1])],
            _ => &[value!(1)],
        };
        let mut c = channel(kind);
        c.update(writes).unwrap();
        assert!(!c.consume() && !c.finish(), "{:?}", c.kind());
        assert!(c.is_available());
    }
}

#[test]
fn a_stored_value_of_another_kind_is_an_error_and_no_panic() {
    for kind in [
        Kind::Topic { accumulate: true },
        Kind::Barrier(names(&["a"])),
        Kind::LastAfterFinish,
        Kind::BarrierAfterFinish(names(&["a"])),
    ] {
        for stored in [value!(7), value!({"a": 1})] {
            let error = Channel::restore(&kind, Some(stored)).unwrap_err();
            assert!(matches!(error, Error::Stored { .. }), "{error}");
        }
    }
}

#[test]
fn a_write_too_deep_to_be_stored_is_an_error() {
    let mut deep = Value::Null;
    for _ in 0..=crate::value::MAX_DEPTH {
        deep = Value::list(vec![deep]);
    }
    assert_eq!(channel(Kind::Last).update(&[deep]), Err(Error::TooDeep));
}

/// Writes that a channel of this kind takes.
fn fitting(kind: &Kind, writes: Vec<Value>, picks: &[bool]) -> Vec<Value> {
    match kind {
        Kind::Barrier(_) | Kind::BarrierAfterFinish(_) => picks
            .iter()
            .map(|a| if *a { "a" } else { "b" }.into())
            .collect(),
        Kind::Aggregate(_) => writes.into_iter().map(|w| Value::list(vec![w])).collect(),
        Kind::Last | Kind::Ephemeral { guard: true } | Kind::Untracked { guard: true } => {
            writes.into_iter().take(1).collect()
        }
        _ => writes,
    }
}

fn observed(c: &Channel) -> (Option<Value>, Option<Value>) {
    (c.get().cloned(), c.snapshot())
}

proptest! {
    #[test]
    fn a_restored_channel_is_as_the_one_that_was_stored(
        steps in proptest::collection::vec(
            (
                proptest::collection::vec(any_value(), 0..3),
                proptest::collection::vec(any::<bool>(), 0..3),
                any::<bool>(),
                any::<bool>(),
            ),
            0..5,
        ),
    ) {
        for kind in every_kind() {
            let mut c = Channel::new(&kind);
            for (writes, picks, consume, finish) in steps.clone() {
                if consume {
                    c.consume();
                }
                c.update(&fitting(&kind, writes, &picks)).unwrap();
                if finish {
                    c.finish();
                }
                let restored = Channel::restore(&kind, c.snapshot()).unwrap();
                if !matches!(kind, Kind::Untracked { .. }) {
                    prop_assert_eq!(observed(&restored), observed(&c), "{:?}", kind);
                }
            }
        }
    }

    #[test]
    fn the_order_of_writes_does_not_matter_to_sum_max_and_barriers(
        numbers in proptest::collection::vec(-1000i64..1000, 0..6),
        picks in proptest::collection::vec(any::<bool>(), 0..6),
    ) {
        let numbers: Vec<Value> = numbers.into_iter().map(Value::from).collect();
        let picks: Vec<Value> =
            picks.into_iter().map(|a| if a { "a" } else { "b" }.into()).collect();
        for (kind, writes) in [
            (Kind::Aggregate(Reducer::sum()), numbers.clone()),
            (Kind::Aggregate(Reducer::max()), numbers),
            (Kind::Barrier(names(&["a", "b"])), picks),
        ] {
            let mut forth = channel(kind.clone());
            let mut back = channel(kind);
            let reversed: Vec<Value> = writes.iter().rev().cloned().collect();
            prop_assert_eq!(forth.update(&writes).unwrap(), back.update(&reversed).unwrap());
            prop_assert_eq!(observed(&forth), observed(&back));
        }
    }

    #[test]
    fn writes_in_one_step_or_in_several_give_the_same_aggregate(
        lists in proptest::collection::vec(proptest::collection::vec(any_value(), 0..3), 0..5),
    ) {
        for reducer in [Reducer::append(), Reducer::union()] {
            let writes: Vec<Value> = lists.iter().cloned().map(Value::list).collect();
            let mut at_once = channel(Kind::Aggregate(reducer.clone()));
            let mut in_turn = channel(Kind::Aggregate(reducer));
            at_once.update(&writes).unwrap();
            for write in &writes {
                in_turn.update(std::slice::from_ref(write)).unwrap();
            }
            prop_assert_eq!(observed(&at_once), observed(&in_turn));
        }
    }
}
