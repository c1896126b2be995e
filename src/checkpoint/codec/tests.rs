//! Tests of the codec: golden bytes, round trips and hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::value;
use crate::value::samples::any_value;

/// The bytes of one value of every kind. They lie in databases: a change needs a new format byte.
#[test]
fn golden_bytes_of_every_kind() {
    let all = Value::list(vec![
        Value::Null,
        false.into(),
        true.into(),
        (-1).into(),
        1000.into(),
        u64::MAX.into(),
        1.5.into(),
        "hé".into(),
        Value::Bytes(Bytes::from_static(&[0, 255])),
        value!({"a": [], "b": {}}),
        Value::Opaque(Arc::new(Opaque {
            tag: "msgpack".into(),
            bytes: Bytes::from_static(&[192]),
        })),
    ]);
    let golden: &[u8] = &[
        1, // format
        8, 11, // list of 11
        0, 1, 2, // null, false, true
        3, 1, // -1, zigzag
        3, 251, 0xd0, 0x07, // 1000, zigzag 2000 as u16
        4, 253, 255, 255, 255, 255, 255, 255, 255, 255, // u64::MAX
        5, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 1.5
        6, 3, b'h', 0xc3, 0xa9, // text
        7, 2, 0, 255, // bytes
        9, 2, 1, b'a', 8, 0, 1, b'b', 9, 0, // map
        10, 7, b'm', b's', b'g', b'p', b'a', b'c', b'k', 1, 192, // opaque
    ];
    assert_eq!(encode(&all), golden);
    assert_eq!(decode(BINCODE, golden).unwrap(), all);
}

#[test]
fn key_order_is_kept() {
    let v = value!({"z": 1, "a": 2, "m": 3});
    assert_eq!(decode(BINCODE, &encode(&v)).unwrap().to_json(), v.to_json());
}

#[test]
fn tags_choose_the_reader() {
    assert_eq!(decode(JSON, br#"{"a":1.0}"#).unwrap(), value!({"a": 1.0}));
    assert_eq!(decode(NULL, b"").unwrap(), Value::Null);
    assert_eq!(decode(NULL, b"x"), Err(Error::Trailing(1)));
    assert!(decode(JSON, b"{").is_err());
}

#[test]
fn unknown_tags_are_kept_and_written_back_as_they_came() {
    let v = decode("msgpack+aes", b"\x93\x01").unwrap();
    assert!(matches!(v, Value::Opaque(_)));
    assert_eq!(
        encode_tagged(&v, Format::Json),
        ("msgpack+aes".into(), b"\x93\x01".to_vec())
    );
    let inside = value!({"x": v});
    assert_eq!(decode(BINCODE, &encode(&inside)).unwrap(), inside);
}

#[test]
fn an_opaque_value_cannot_pose_as_a_known_encoding() {
    let v = Value::Opaque(Arc::new(Opaque {
        tag: JSON.into(),
        bytes: Bytes::from_static(b"1"),
    }));
    let (tag, bytes) = encode_tagged(&v, Format::Bincode);
    assert_eq!(decode(&tag, &bytes).unwrap(), v);
}

#[test]
fn other_formats_and_leftover_bytes_are_errors() {
    assert_eq!(decode(BINCODE, &[2, 0]), Err(Error::Format(2)));
    assert_eq!(decode(BINCODE, &[1, 0, 0, 0]), Err(Error::Trailing(2)));
    assert!(matches!(decode(BINCODE, &[]), Err(Error::Damaged(_))));
    assert!(matches!(decode(BINCODE, &[1]), Err(Error::Damaged(_))));
    assert!(matches!(decode(BINCODE, &[1, 99]), Err(Error::Damaged(_))));
    assert!(matches!(
        decode(BINCODE, &[1, 6, 1, 0xff]),
        Err(Error::Damaged(_))
    ));
}

#[test]
fn length_prefixes_are_not_trusted() {
    for kind in [kind::STR, kind::BYTES, kind::LIST, kind::MAP, kind::OPAQUE] {
        for len in [
            &[253u8, 255, 255, 255, 255, 255, 255, 255, 255][..],
            &[252, 255, 255, 255, 63],
        ] {
            let bytes = [&[FORMAT, kind][..], len, &[0; 40]].concat();
            assert!(
                matches!(decode(BINCODE, &bytes), Err(Error::Damaged(_))),
                "kind {kind}"
            );
        }
    }
}

#[test]
fn nesting_is_limited_and_all_that_is_accepted_can_be_read() {
    let mut bytes = vec![FORMAT];
    for _ in 0..1_000_000 {
        bytes.extend([kind::LIST, 1]);
    }
    assert!(matches!(decode(BINCODE, &bytes), Err(Error::Damaged(_))));

    let mut deepest = Value::Null;
    for _ in 0..MAX_DEPTH {
        deepest = Value::list(vec![deepest]);
    }
    assert_eq!(decode(BINCODE, &encode(&deepest)).unwrap(), deepest);
}

#[test]
fn json_is_chosen_only_where_it_keeps_the_value() {
    let tag = |v: &Value| encode_tagged(v, Format::Json).0;
    assert_eq!(&*tag(&value!({"a": [1, 1.0, "x", null]})), JSON);
    assert_eq!(&*tag(&value!([f64::NAN])), BINCODE);
    assert_eq!(&*tag(&Value::Bytes(Bytes::new())), BINCODE);
}

proptest! {
    #[test]
    fn any_value_comes_back(v in any_value()) {
        prop_assert_eq!(&decode(BINCODE, &encode(&v)).unwrap(), &v);
        for format in [Format::Bincode, Format::Json] {
            let (tag, bytes) = encode_tagged(&v, format);
            prop_assert_eq!(&decode(&tag, &bytes).unwrap(), &v);
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode(BINCODE, &bytes);
        bytes.insert(0, FORMAT);
        let _ = decode(BINCODE, &bytes);
    }

    #[test]
    fn cut_or_flipped_bytes_never_panic(v in any_value(), at in any::<usize>(), flip in 1u8..) {
        let mut bytes = encode(&v);
        let at = at % bytes.len();
        prop_assert!(decode(BINCODE, &bytes[..at]).is_err());
        bytes[at] ^= flip;
        let _ = decode(BINCODE, &bytes);
    }
}
