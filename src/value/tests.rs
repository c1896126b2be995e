//! Tests of values: JSON, serde, sharing and limits.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::samples::any_value;
use super::*;

fn parse(text: &str) -> Value {
    Value::from_json_slice(text.as_bytes()).unwrap()
}

#[test]
fn json_text_comes_back_byte_for_byte() {
    for text in [
        r#"{"b":1,"a":[true,false,null],"c":{"d":"x\n\"\\\u0001é"}}"#,
        "[0,-1,9223372036854775807,-9223372036854775808,18446744073709551615]",
        "[1.0,-0.0,0.1,1e+22,1e+300,5e-324,2.5]",
        "[]",
        "{}",
        r#""""#,
    ] {
        assert_eq!(parse(text).to_json(), text);
    }
}

#[test]
fn integral_floats_stay_floats_and_integers_stay_integers() {
    assert_eq!(parse("1.0"), Value::Float(1.0));
    assert_eq!(parse("1"), Value::Int(1));
    assert_eq!(parse("9223372036854775808"), Value::Uint(1 << 63));
    assert_eq!(parse("1e19"), Value::Float(1e19));
}

#[test]
fn integers_beyond_64_bits_are_refused_with_their_place() {
    let error =
        Value::from_json_slice(b"{\"s\": \"99999999999999999999\",\n \"n\": 18446744073709551616}");
    assert_eq!(
        error,
        Err(JsonError::IntegerTooLarge {
            digits: "18446744073709551616".into(),
            line: 2,
            column: 7
        })
    );
    assert!(Value::from_json_slice(b"-9223372036854775809").is_err());
    assert_eq!(
        parse("18446744073709551616.0"),
        Value::Float(18446744073709551616.0)
    );
}

#[test]
fn lone_surrogates_become_the_replacement_character() {
    assert_eq!(parse(r#""a\ud800b""#), "a\u{fffd}b");
    assert_eq!(
        parse(r#""\udc00\ud83d\ude00\ud83d""#),
        "\u{fffd}\u{1f600}\u{fffd}"
    );
    assert_eq!(
        parse(r#"{"\ud800":["\ud800\ud800\udc00"]}"#).to_json(),
        "{\"\u{fffd}\":[\"\u{fffd}\u{10000}\"]}"
    );
    assert_eq!(parse(r#""\\ud800""#), r"\ud800");
}

#[test]
fn the_last_of_duplicate_keys_wins() {
    assert_eq!(
        parse(r#"{"a":1,"b":2,"a":3}"#).to_json(),
        r#"{"a":3,"b":2}"#
    );
}

#[test]
fn text_that_is_no_json_is_refused_with_its_place() {
    for text in [
        "",
        "{",
        "[1,]",
        "NaN",
        "Infinity",
        "1 2",
        "{'a':1}",
        "\"\u{1}\"",
        r#""\ud8""#,
    ] {
        let error = Value::from_json_slice(text.as_bytes()).unwrap_err();
        assert!(matches!(error, JsonError::Syntax { .. }), "{text}: {error}");
        assert!(error.to_string().contains("line 1 column"), "{error}");
    }
    assert!(Value::from_json_slice(b"\"\xff\"").is_err());
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(Value::from_json_slice(nested(127).as_bytes()).is_ok());
    assert!(Value::from_json_slice(nested(100_000).as_bytes()).is_err());
}

#[test]
fn what_json_cannot_say_becomes_null_or_text() {
    let v = Value::list(vec![
        f64::NAN.into(),
        f64::INFINITY.into(),
        Value::Bytes(b"abc"[..].into()),
    ]);
    assert_eq!(v.to_json(), r#"[null,null,"YWJj"]"#);
    assert_eq!(v.to_json_value().to_string(), v.to_json());
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Sample {
    id: u8,
    ratio: f64,
    name: Option<String>,
    kind: Kind,
    by_number: BTreeMap<i32, Vec<Kind>>,
    free: Value,
    #[serde(flatten)]
    more: Map,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Unit,
    New(i32),
    Pair(i32, String),
    Fields { x: bool },
}

fn sample() -> Sample {
    Sample {
        id: 7,
        ratio: 2.0,
        name: None,
        kind: Kind::Fields { x: true },
        by_number: BTreeMap::from([(
            -1,
            vec![Kind::Unit, Kind::New(3), Kind::Pair(1, "p".into())],
        )]),
        free: value!({"list": [1, null]}),
        more: Map::from([("extra", value!([1.5, {"deep": true}]))]),
    }
}

#[test]
fn rust_types_round_trip_as_through_serde_json() {
    let v = to_value(&sample()).unwrap();
    assert_eq!(v.to_json(), serde_json::to_string(&sample()).unwrap());
    assert_eq!(from_value::<Sample>(&v).unwrap(), sample());
    assert_eq!(
        serde_json::from_str::<Sample>(&v.to_json()).unwrap(),
        sample()
    );
}

#[test]
fn values_inside_rust_types_are_shared_and_not_copied() {
    let list = value!([1, 2, 3]);
    let v = to_value(&vec![Some(list.clone())]).unwrap();
    assert!(v[0].is_identical(&list));
    let back: Vec<Option<Value>> = from_value(&v).unwrap();
    assert!(back[0].as_ref().unwrap().is_identical(&list));
    // Bytes survive, which they would not by way of JSON.
    let bytes = Value::Bytes(b"abc"[..].into());
    assert_eq!(to_value(&[&bytes]).unwrap()[0], bytes);
}

#[test]
fn errors_of_typed_reads_say_where() {
    let mut v = to_value(&sample()).unwrap();
    let wrong = value!({"-1": ["unit", {"new": "three"}]});
    v.make_map_mut().unwrap().insert("by_number", wrong);
    let error = from_value::<Sample>(&v).unwrap_err();
    assert_eq!(error.path(), "by_number.-1[1].new");
    assert!(
        error
            .to_string()
            .contains("invalid type: string \"three\", expected i32"),
        "{error}"
    );
}

#[test]
fn what_has_no_value_form_is_an_error() {
    assert!(to_value(&BTreeMap::from([((1, 2), 3)])).is_err());
    assert!(to_value(&u128::MAX).is_err());
    assert_eq!(to_value(&5u128), Ok(Value::Int(5)));
}

#[test]
fn endless_nesting_of_rust_types_is_an_error() {
    let mut deep = Value::Null;
    for _ in 0..MAX_DEPTH {
        deep = Value::list(vec![deep]);
    }
    assert!(!deep.is_deeper_than(MAX_DEPTH));
    assert!(to_value(&deep).is_ok());
    assert_eq!(to_value(&[deep]), Err(EncodeError::TooDeep));
}

#[test]
fn changing_an_unshared_list_happens_in_place() {
    let mut v = value!([1]);
    let items = v.make_list_mut().unwrap();
    items.reserve(10);
    let before = items.as_ptr();
    v.make_list_mut().unwrap().push(2.into());
    assert_eq!(v.as_list().unwrap().as_ptr(), before);
    let other = v.clone();
    v.make_list_mut().unwrap().push(3.into());
    assert_eq!(other, value!([1, 2]));
    assert_eq!(v, value!([1, 2, 3]));
}

#[test]
fn maps_keep_insertion_order_also_when_a_field_goes() {
    let mut map = Map::from([("c", value!(1)), ("a", value!(2)), ("b", value!(3))]);
    map.insert("c", 9);
    map.remove("a");
    assert_eq!(Value::map(map).to_json(), r#"{"c":9,"b":3}"#);
}

#[test]
fn floats_equal_themselves_bit_by_bit() {
    assert_eq!(Value::from(f64::NAN), Value::from(f64::NAN));
    assert_eq!(Value::from(1.0), Value::from(1.0));
    assert_ne!(Value::from(0.0), Value::from(-0.0));
    assert_ne!(Value::from(1.0), Value::from(1));
}

proptest! {
    #[test]
    fn any_value_comes_back_from_its_own_serde(v in any_value()) {
        prop_assert_eq!(&to_value(&v).unwrap(), &v);
        prop_assert_eq!(&from_value::<Value>(&v).unwrap(), &v);
    }

    #[test]
    fn json_of_any_value_is_stable(v in any_value()) {
        let once = Value::from_json_slice(v.to_json().as_bytes()).unwrap();
        prop_assert_eq!(once.to_json(), v.to_json());
        prop_assert_eq!(v.to_json_value().to_string(), v.to_json());
    }

    #[test]
    fn random_text_never_panics(text in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Value::from_json_slice(&text);
    }

    #[test]
    fn json_like_noise_never_panics(text in "[\\[\\]{}\",:0-9.eE\\\\ud8cDC-]{0,40}") {
        let _ = Value::from_json_slice(text.as_bytes());
    }
}

#[test]
fn values_are_compared_with_json_as_clients_see_it() {
    let value = crate::value!({"a": [1, 2.5, null, true], "b": {"c": "d"}});
    assert_eq!(
        value,
        serde_json::json!({"b": {"c": "d"}, "a": [1, 2.5, null, true]})
    );
    assert_ne!(value, serde_json::json!({"a": []}));
    assert_eq!(Value::Bytes(vec![1, 2].into()), serde_json::json!("AQI="));
}
