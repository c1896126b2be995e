//! Tests of the codec: golden bytes, round trips and hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::value;
use crate::value::samples::any_value;

/// One value of every kind.
fn every_kind() -> Value {
    Value::list(vec![
        Value::Null,
        false.into(),
        true.into(),
        (-1).into(),
        1000.into(),
        u64::MAX.into(),
        1.5.into(),
        "hé".into(),
        Value::Bytes([0, 255].into()),
        value!({"a": [], "b": {}}),
        Value::Opaque(Arc::new(Opaque {
            tag: "msgpack".into(),
            bytes: Bytes::from_static(&[192]),
        })),
    ])
}

/// The content of [`every_kind`] in the earlier format.
const EARLIER: &[u8] = &[
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

/// They lie in databases: a change needs a new format byte.
#[test]
fn golden_bytes_of_every_kind() {
    let golden: &[u8] = &[
        2, // format
        8, 11, // list of 11
        0, 1, 2, // null, false, true
        3, 1, // -1, zigzag
        3, 251, 0xd0, 0x07, // 1000, zigzag 2000 as u16
        4, 253, 255, 255, 255, 255, 255, 255, 255, 255, // u64::MAX
        5, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 1.5
        6, 3, b'h', 0xc3, 0xa9, // text
        7, 2, 0, 255, // bytes
        14, 2, 2, b'a', 8, 0, 2, b'b', 14, 0, // map
        10, 7, b'm', b's', b'g', b'p', b'a', b'c', b'k', 1, 192, // opaque
    ];
    assert_eq!(encode(&every_kind()), golden);
    assert_eq!(decode(BINCODE, golden).unwrap(), every_kind());
}

#[test]
fn the_earlier_format_is_read() {
    assert_eq!(decode(BINCODE, EARLIER).unwrap(), every_kind());
}

/// The numbers of words lie in databases too.
#[test]
fn golden_bytes_of_words_and_ids() {
    let message = value!({
        "type": "human", "content": "hi", "id": "01a212e0-15f9-73a8-962e-e48923d0ab94",
        "own": "branch:to:bot", "graph_id": "user_id",
    });
    let golden: &[u8] = &[
        2, 14, 5, // a map of 5
        35, 11, 50, // type: human
        37, 6, 2, b'h', b'i', // content
        39, 12, 0x01, 0xa2, 0x12, 0xe0, 0x15, 0xf9, 0x73, 0xa8, 0x96, 0x2e, 0xe4, 0x89, 0x23, 0xd0,
        0xab, 0x94, 6, b'o', b'w', b'n', 13, 3, b'b', b'o', b't', // own: branch:to:bot
        137, 11, 72, // graph_id: user_id
    ];
    assert_eq!(encode(&message), golden);
    let back = decode(BINCODE, golden).unwrap();
    assert_eq!(back.to_json(), message.to_json());
}

#[test]
fn texts_that_are_almost_ids_or_words_come_back_as_they_were() {
    for text in [
        "01A212E0-15F9-73A8-962E-E48923D0AB94",
        "01a212e015f973a8962ee48923d0ab94",
        "{01a212e0-15f9-73a8-962e-e48923d0ab9}",
        "01a212e0-15f9-73a8-962ee-48923d0ab94",
        "01a212e0-15f9-73a8-962e-e48923d0abg4",
        "urn:uuid:01a212e0-15f9-73a8-962e-e489",
        "branch:to:",
        "branch:to",
        "Human",
        "human\0",
        "",
    ] {
        let value = value!({ text: [text] });
        assert_eq!(decode(BINCODE, &encode(&value)).unwrap(), value, "{text}");
    }
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
    assert_eq!(decode("b", &[1, 2]).unwrap(), Value::Bool(true));
    assert_eq!(decode("bincode", &[1, 2]).unwrap(), Value::Bool(true));
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
    assert_eq!(decode(BINCODE, &[3, 0]), Err(Error::Format(3)));
    assert_eq!(decode(BINCODE, &[0, 0]), Err(Error::Format(0)));
    assert_eq!(decode(BINCODE, &[1, 0, 0, 0]), Err(Error::Trailing(2)));
    assert!(matches!(decode(BINCODE, &[]), Err(Error::Damaged(_))));
    assert!(matches!(decode(BINCODE, &[1]), Err(Error::Damaged(_))));
    assert!(matches!(decode(BINCODE, &[1, 99]), Err(Error::Damaged(_))));
    for bytes in [&[2, 11, 73][..], &[2, 12, 0], &[2, 14, 1, 147, 0]] {
        let error = decode(BINCODE, bytes);
        assert!(matches!(error, Err(Error::Damaged(_))), "{error:?}");
    }
    assert!(matches!(
        decode(BINCODE, &[1, 6, 1, 0xff]),
        Err(Error::Damaged(_))
    ));
}

#[test]
fn length_prefixes_are_not_trusted() {
    for kind in [
        kind::STR,
        kind::BYTES,
        kind::LIST,
        kind::MAP,
        kind::OPAQUE,
        kind::BRANCH,
        kind::FIELDS,
    ] {
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
    assert_eq!(&*tag(&Value::Bytes([].into())), BINCODE);
}

proptest! {
    #[test]
    fn any_value_comes_back(v in any_value()) {
        prop_assert_eq!(&decode(BINCODE, &encode(&v)).unwrap(), &v);
        for format in [Format::Bincode, Format::Json] {
            let (tag, bytes) = encode_tagged(&v, format);
            prop_assert_eq!(&decode(&tag, &bytes).unwrap(), &v);
            let beside = Value::Bytes([].into());
            let (tag, bytes, other) = encode_pair(&v, &beside, format);
            prop_assert_eq!(&decode(&tag, &bytes).unwrap(), &v);
            prop_assert_eq!(&decode(&tag, &other).unwrap(), &beside);
        }
    }

    #[test]
    fn any_text_comes_back(text in "(branch:to:)?[a-f0-9-]{0,36}|[a-z_]{0,14}") {
        let key = text.as_str();
        let value = value!({ key: (text.clone()) });
        prop_assert_eq!(&decode(BINCODE, &encode(&value)).unwrap(), &value);
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
