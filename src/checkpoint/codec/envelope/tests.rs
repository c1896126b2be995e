//! Tests of envelopes: round trips, golden bytes and hostile bytes.

use super::*;

fn version(counter: u64) -> Version {
    Version {
        counter,
        salt: 0x00ab_cdef,
    }
}

pub(super) fn full() -> Envelope<'static> {
    let versions = BTreeMap::from([("a".into(), version(3)), ("nul\0".into(), version(1 << 40))]);
    let consumed = BTreeMap::from([
        ("__input__".into(), BTreeMap::new()),
        (
            "n".into(),
            BTreeMap::from([("a".into(), version(2)), ("gone".into(), version(0))]),
        ),
        ("o".into(), BTreeMap::from([("a".into(), version(3))])),
    ]);
    Envelope {
        versions: Cow::Owned(versions),
        values: vec![
            ("a".into(), Value::from("x\0")),
            ("b".into(), Value::Int(-1)),
        ],
        consumed: Cow::Owned(consumed),
        updated: Updated::Names(vec!["a".into(), "other".into()]),
        task: Some(TaskId(Uuid::from_u128(7))),
    }
}

#[test]
fn an_envelope_comes_back_as_it_was() {
    let mut envelope = full();
    for updated in [envelope.updated.clone(), Updated::Newest, Updated::Unknown] {
        envelope.updated = updated;
        assert_eq!(decode(&encode(&envelope)).unwrap(), envelope);
    }
    envelope.task = None;
    envelope.values.clear();
    assert_eq!(decode(&encode(&envelope)).unwrap(), envelope);
}

#[test]
fn the_bytes_of_an_envelope_do_not_change() {
    let bytes = encode(&full());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "0202030461106e756c00046210676f6e65146f7468657204fd0000000000010000fdfd\
         ffffffff000000efcdab0000efcdab00fdfeffffffff000000efcdab00fd0000000000\
         010000efcdab000001020006027800020301030500046e0200020303046f0100000602\
         000400000000000000000000000000000007"
    );
}

#[test]
fn cut_and_changed_envelopes_are_errors_and_never_panic() {
    let bytes = encode(&full());
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    for at in 0..bytes.len() {
        for byte in [0, 1, 0x7f, 0xfb, 0xfc, 0xfd, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            let _ = decode(&changed);
        }
    }
    let mut long = bytes;
    long.push(0);
    assert!(matches!(decode(&long), Err(Error::Trailing(1))));
    assert!(matches!(decode(&[9]), Err(Error::Format(9))));
}

#[test]
fn names_of_every_form_come_back() {
    for name in [
        "",
        "messages",
        "branch:to:",
        "branch:to:bot",
        "other",
        &"n".repeat(300),
    ] {
        let mut envelope = full();
        envelope.versions.to_mut().insert(name.into(), version(0));
        let consumed = Versions::from([(name.into(), version(u64::MAX))]);
        envelope.consumed.to_mut().insert(name.into(), consumed);
        assert_eq!(decode(&encode(&envelope)).unwrap(), envelope, "{name}");
    }
}

#[test]
fn the_envelope_of_a_chat_is_short() {
    let salted = |counter, salt| Version { counter, salt };
    let (now, before) = (salted(601, 0x0022_7291), salted(600, 0x0013_4fe9));
    let versions = Versions::from([
        ("__start__".into(), now),
        ("branch:to:bot".into(), before),
        ("messages".into(), before),
    ]);
    let consumed = BTreeMap::from([
        ("__input__".into(), Versions::new()),
        (
            "__start__".into(),
            Versions::from([("__start__".into(), salted(598, 0x0034_65f5))]),
        ),
        (
            "bot".into(),
            Versions::from([("branch:to:bot".into(), before)]),
        ),
    ]);
    let encoded = encode(&Envelope {
        versions: Cow::Owned(versions),
        values: vec![],
        consumed: Cow::Owned(consumed),
        updated: Updated::Newest,
        task: None,
    });
    assert_eq!(encoded.len(), 44);
}

#[test]
fn an_envelope_that_names_a_node_twice_is_an_error() {
    let mut bytes = encode(&full());
    let second = bytes.iter().rposition(|byte| *byte == b'o').unwrap();
    bytes[second] = b'n';
    assert!(matches!(decode(&bytes), Err(Error::Damaged(_))));
}
