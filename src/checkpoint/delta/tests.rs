//! Tests of deltas: what is found, applied and refused.

use proptest::prelude::*;

use super::*;
use crate::checkpoint::codec::Format;
use crate::value;
use crate::value::samples::any_value;

fn items(v: &Value) -> &[Value] {
    v.as_list().unwrap()
}

#[test]
fn an_append_is_what_was_appended() {
    let old = value!([{"id": 1}, {"id": 2}]);
    let mut new = old.clone();
    new.make_list_mut().unwrap().push("three".into());
    let delta = diff(items(&old), items(&new)).unwrap();
    assert_eq!(
        delta,
        Delta {
            keep: 2,
            items: vec!["three".into()]
        }
    );
}

#[test]
fn an_edit_near_the_end_keeps_what_is_before_it() {
    let delta = diff(items(&value!([1, 2, 3, 4])), items(&value!([1, 2, "x", 4]))).unwrap();
    assert_eq!(
        delta,
        Delta {
            keep: 2,
            items: vec!["x".into(), 4.into()]
        }
    );
}

#[test]
fn a_removal_at_the_end_has_no_items() {
    let delta = diff(items(&value!([1, 2, 3])), items(&value!([1]))).unwrap();
    assert_eq!(
        delta,
        Delta {
            keep: 1,
            items: vec![]
        }
    );
}

#[test]
fn lists_without_a_common_beginning_have_no_delta() {
    assert_eq!(diff(items(&value!([1, 2])), items(&value!([2, 1]))), None);
    assert_eq!(diff(&[], items(&value!([1]))), None);
    assert_eq!(diff(items(&value!([1])), &[]), None);
}

#[test]
fn an_unshared_base_is_extended_in_place() {
    let mut base = value!([1]);
    base.make_list_mut().unwrap().reserve(8);
    let before = items(&base).as_ptr();
    let new = apply(
        base,
        &Delta {
            keep: 1,
            items: vec![2.into()],
        },
    )
    .unwrap();
    assert_eq!(new, value!([1, 2]));
    assert_eq!(items(&new).as_ptr(), before);
}

#[test]
fn a_shared_base_stays_as_it_was() {
    let base = value!([1, 2]);
    apply(
        base.clone(),
        &Delta {
            keep: 1,
            items: vec![],
        },
    )
    .unwrap();
    assert_eq!(base, value!([1, 2]));
}

#[test]
fn a_delta_that_does_not_fit_is_an_error() {
    let delta = Delta {
        keep: 3,
        items: vec![],
    };
    assert!(apply(value!([1, 2]), &delta).is_err());
    assert!(apply(value!({"a": 1}), &delta).is_err());
}

#[test]
fn bytes_that_are_no_delta_are_errors() {
    for value in [
        value!([1]),
        value!(["1", []]),
        value!([-1, []]),
        value!([1, [], 2]),
        value!(7),
    ] {
        assert!(
            decode(codec::BINCODE, &codec::encode(&value)).is_err(),
            "{value}"
        );
    }
    assert!(decode(codec::BINCODE, b"").is_err());
}

proptest! {
    #[test]
    fn the_delta_of_two_lists_leads_from_one_to_the_other(
        common in proptest::collection::vec(any_value(), 0..6),
        old_end in proptest::collection::vec(any_value(), 0..4),
        new_end in proptest::collection::vec(any_value(), 0..4),
    ) {
        let old = [common.clone(), old_end].concat();
        let new = [common.clone(), new_end].concat();
        match diff(&old, &new) {
            None => prop_assert!(old.first() != new.first() || old.is_empty()),
            Some(delta) => {
                prop_assert!(delta.keep >= common.len());
                prop_assert_eq!(delta.keep + delta.items.len(), new.len());
                let (tag, bytes) = encode(&delta, Format::Bincode);
                let stored = decode(&tag, &bytes).unwrap();
                prop_assert_eq!(&stored, &delta);
                prop_assert_eq!(apply(Value::list(old), &stored).unwrap(), Value::list(new));
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode(codec::BINCODE, &bytes);
    }
}
