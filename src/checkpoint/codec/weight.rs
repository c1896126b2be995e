//! What stored values weigh: their bytes, and for those that take more memory than most a multiple of their
//! bytes, which their tags have. So what is about to be read is known without reading it.

use std::sync::Arc;

use super::{BINCODE, JSON, RESULTS};
use crate::value::Value;

/// What a value takes in memory while it is read, decoded and written as JSON, as a multiple of what it weighs.
pub const IN_MEMORY: u64 = 6;

/// What a JSON text weighs that is stored as such: so many times its bytes. Statements have the same number.
pub const JSON_TEXT: u64 = 12;

/// What has fewer bytes has no multiple: its row takes more than its value.
const SMALL: usize = 256;

/// The greatest multiple: numbers of more digits are no multiples.
const MOST: u64 = 99;

/// The tag of a value that has so many bytes in the form that is called `form`.
pub(super) fn tag(form: &str, value: &Value, bytes: usize) -> Arc<str> {
    if bytes < SMALL {
        return form.into();
    }
    // Lists and maps that are read from JSON grow as they are read, to more room than they need, and share no names.
    let decoded = match form {
        JSON => value.memory().saturating_mul(2),
        _ => value.memory(),
    };
    let memory = decoded.saturating_add(texts(bytes)) as u64;
    tag_of(form, memory.div_ceil(IN_MEMORY * bytes.max(1) as u64))
}

/// The tag of results that share a row of so many bytes, and weigh so much together.
pub fn tag_of_results(weight: u64, bytes: usize) -> Arc<str> {
    tag_of(RESULTS, weight.div_ceil(bytes.max(1) as u64))
}

fn tag_of(form: &str, times: u64) -> Arc<str> {
    match times {
        0 | 1 => form.into(),
        times => format!("{form}{}", times.min(MOST)).into(),
    }
}

/// The multiple that a tag has; `None` when it is no tag of this kind.
pub(super) fn times(tag: &str) -> Option<u64> {
    let mut forms = [BINCODE, JSON, RESULTS].into_iter();
    let digits = forms.find_map(|form| tag.strip_prefix(form))?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let times = is_number.then(|| digits.parse().ok())?;
    times.filter(|times| *times <= MOST)
}

/// The tag of two values in one form of which one tag is stored.
pub(super) fn heavier(one: Arc<str>, other: Arc<str>) -> Arc<str> {
    if times(&other) > times(&one) {
        other
    } else {
        one
    }
}

/// What the bytes of a value and its JSON text take while both are there.
fn texts(bytes: usize) -> usize {
    bytes.saturating_mul(7) / 2
}

/// What decoded values take in memory, of which so many bytes are stored that weigh so much.
pub fn memory(weight: u64, bytes: usize) -> usize {
    let needed = usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
    needed.saturating_sub(texts(bytes))
}

/// What a stored value of so many bytes weighs.
pub fn weight(tag: &str, bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(times(tag).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint::codec::{self, Format, decode},
        value,
    };

    fn encode_weighed(value: &Value) -> (Arc<str>, Vec<u8>) {
        codec::encode_weighed(value, Format::Bincode)
    }

    fn memory(value: &Value) -> u64 {
        value.memory() as u64
    }

    #[test]
    fn most_values_weigh_what_they_have_and_tiny_ones_more() {
        let text = value!(["one two three ".repeat(100)]);
        assert_eq!(&*encode_weighed(&text).0, "b");
        let message = value!({
            "id": "0198c7a8-1b2c-7def-8000-0123456789ab", "type": "human", "content": "x".repeat(1000),
            "additional_kwargs": {}, "response_metadata": {}
        });
        assert_eq!(&*encode_weighed(&Value::list(vec![message; 50])).0, "b");
        let nulls = Value::list(vec![Value::Null; 1000]);
        assert_eq!(&*encode_weighed(&nulls).0, "b5");
        let records = Value::list(vec![value!({"a": null}); 1000]);
        assert_eq!(&*encode_weighed(&records).0, "b8");
    }

    #[test]
    fn no_value_takes_more_memory_than_its_weight_says() {
        let shapes = [
            value!(null),
            value!(1),
            value!(1.5),
            value!("a"),
            value!("role"),
            value!("0198c7a8-1b2c-7def-8000-0123456789ab"),
            value!([]),
            value!({}),
            value!([null]),
            value!([[[]]]),
            value!({"a": 1, "b": []}),
            value!({"role": {"a": {}}}),
        ];
        for shape in shapes {
            for items in [260, 513, 10_000] {
                let list = Value::list(vec![shape.clone(); items]);
                for format in [Format::Bincode, Format::Json] {
                    let (tag, bytes) = codec::encode_weighed(&list, format);
                    let weight = weight(&tag, bytes.len());
                    let needed = memory(&list) + (bytes.len() + list.to_json().len()) as u64;
                    assert!(weight * IN_MEMORY >= needed, "{items} of {shape:?}: {tag}");
                    assert_eq!(decode(&tag, &bytes).unwrap(), list);
                }
            }
        }
    }

    #[test]
    fn tags_of_others_have_no_multiple() {
        for tag in [
            "b", "bincode", "json", "msgpack", "b100", "b1x", "b-1", "json100", "jsonb2", "",
        ] {
            assert_eq!(times(tag), None, "{tag}");
            assert_eq!(weight(tag, 7), 7);
        }
        assert_eq!((times("b2"), weight("b25", 4)), (Some(2), 100));
        assert_eq!((times("json2"), weight("json25", 4)), (Some(2), 100));
    }
}
