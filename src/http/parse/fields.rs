//! Reads the fields of a JSON body one by one; an error names the field that is wrong.

use std::sync::Arc;

use crate::http::server::Error;
use crate::value::{Map, Value};

/// An object of a request. Unknown fields are ignored, null is the same as absent.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    map: &'a Map,
    /// Where the object is in the body; empty for the body itself.
    path: &'a str,
}

type Result<T> = std::result::Result<T, Error>;

impl<'a> Fields<'a> {
    /// The fields of the body.
    pub fn of(body: &'a Value) -> Result<Self> {
        Self::at(body, "")
    }

    /// The fields of an object inside the body.
    pub fn at(value: &'a Value, path: &'a str) -> Result<Self> {
        match value {
            Value::Map(map) => Ok(Self { map, path }),
            other => Err(wrong_type(other, "object", path)),
        }
    }

    /// A field of any type.
    pub fn any(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// All fields, unknown ones too.
    pub fn map_of(&self) -> &'a Map {
        self.map
    }

    /// 422 for a field whose value makes no sense.
    pub fn refuse(&self, name: &str, reason: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{reason}{}", location(&self.full(name))))
    }

    /// 422 for a missing field.
    pub fn required(&self, name: &str) -> Error {
        let inside = location(self.path);
        Error::invalid(format!("\"{name}\" is a required property{inside}"))
    }

    pub fn text(&self, name: &str) -> Result<Option<&'a Arc<str>>> {
        self.typed(name, "string", |value| match value {
            Value::Str(text) => Some(text),
            _ => None,
        })
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "boolean", Value::as_bool)
    }

    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, "number", Value::as_f64)
    }

    pub fn map(&self, name: &str) -> Result<Option<&'a Map>> {
        self.typed(name, "object", Value::as_map)
    }

    pub fn list(&self, name: &str) -> Result<Option<&'a [Value]>> {
        self.typed(name, "array", Value::as_list)
    }

    /// A whole number in a range; an integral float counts.
    pub fn integer(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>> {
        let Some(number) = self.typed(name, "integer", whole)? else {
            return Ok(None);
        };
        if number < min {
            let reason = format!("{number} is less than the minimum of {min}");
            return Err(self.refuse(name, reason));
        }
        if number > max {
            let reason = format!("{number} is greater than the maximum of {max}");
            return Err(self.refuse(name, reason));
        }
        Ok(Some(number))
    }

    /// One of a list of words.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(value) = self.any(name) else {
            return Ok(None);
        };
        pick(value, words)
            .map(Some)
            .ok_or_else(|| self.refuse(name, not_one_of(value, words)))
    }

    /// A list of words of a list.
    pub fn words<T: Copy>(
        &self,
        name: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<Vec<T>>> {
        let Some(items) = self.list(name)? else {
            return Ok(None);
        };
        items
            .iter()
            .map(|item| pick(item, words).ok_or_else(|| self.refuse(name, not_one_of(item, words))))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<Arc<str>>>> {
        let Some(items) = self.list(name)? else {
            return Ok(None);
        };
        items
            .iter()
            .map(|item| match item {
                Value::Str(text) => Ok(text.clone()),
                other => Err(wrong_type(other, "string", &self.full(name))),
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    fn typed<T>(
        &self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.any(name) else {
            return Ok(None);
        };
        read(value)
            .map(Some)
            .ok_or_else(|| wrong_type(value, kind, &self.full(name)))
    }

    fn full(&self, name: &str) -> String {
        match self.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }
}

/// A whole number of 64 bits; an integral float counts, and what is more than the greatest number is
/// that one.
pub fn whole(value: &Value) -> Option<i64> {
    const MOST: f64 = u64::MAX as f64;
    match value {
        Value::Int(number) => Some(*number),
        Value::Uint(_) => Some(i64::MAX),
        Value::Float(float) if float.fract() == 0.0 && float.abs() < MOST => Some(*float as i64),
        _ => None,
    }
}

/// The meaning of a word.
pub fn pick<T: Copy>(value: &Value, words: &[(&'static str, T)]) -> Option<T> {
    let text = value.as_str()?;
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning)
}

/// `"x" is not one of "a", "b" or "c"`.
pub fn not_one_of<T>(value: &Value, words: &[(&'static str, T)]) -> String {
    let mut list = String::new();
    for (index, (word, _)) in words.iter().enumerate() {
        match index {
            0 => {}
            last if last + 1 == words.len() => list.push_str(" or "),
            _ => list.push_str(", "),
        }
        list.push_str(&format!("\"{word}\""));
    }
    format!("{} is not one of {list}", shown(value))
}

fn wrong_type(value: &Value, kind: &str, path: &str) -> Error {
    let (shown, location) = (shown(value), location(path));
    Error::invalid(format!("{shown} is not of type \"{kind}\"{location}"))
}

fn location(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!(", in `{path}`"),
    }
}

/// A value as an error quotes it: its beginning is enough to recognise it.
fn shown(value: &Value) -> String {
    const LIMIT: usize = 80;
    let text = match value {
        // Not rendered whole: it may be megabytes.
        Value::List(items) if items.len() > LIMIT => return "The list".to_owned(),
        Value::Map(map) if map.len() > LIMIT => return "The object".to_owned(),
        Value::Str(text) if text.len() > LIMIT => {
            let short: String = text.chars().take(LIMIT).collect();
            return format!("\"{short}…\"");
        }
        value => value.to_json(),
    };
    if text.chars().count() <= LIMIT {
        return text;
    }
    let short: String = text.chars().take(LIMIT).collect();
    format!("{short}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn each_kind_of_mistake_names_the_value_and_the_field() {
        let body = value!({
            "limit": 0, "big": 1001, "huge": 1e300, "after": "x", "mode": "bogus", "list": ["a", 1], "nothing": null
        });
        let fields = Fields::of(&body).unwrap();
        let words = [("create", 1), ("reject", 2), ("else", 3)];
        let detail = |error: Error| {
            assert_eq!(error.status, 422);
            error.detail.into_owned()
        };
        assert_eq!(
            detail(fields.integer("limit", 1, 1000).unwrap_err()),
            "0 is less than the minimum of 1, in `limit`"
        );
        assert_eq!(
            detail(fields.integer("big", 1, 1000).unwrap_err()),
            "1001 is greater than the maximum of 1000, in `big`"
        );
        let huge = detail(fields.integer("huge", 0, i64::MAX).unwrap_err());
        assert!(huge.contains("is not of type \"integer\""), "{huge}");
        assert_eq!(
            detail(fields.number("after").unwrap_err()),
            "\"x\" is not of type \"number\", in `after`"
        );
        assert_eq!(
            detail(fields.word("mode", &words).unwrap_err()),
            "\"bogus\" is not one of \"create\", \"reject\" or \"else\", in `mode`"
        );
        assert_eq!(
            detail(fields.texts("list").unwrap_err()),
            "1 is not of type \"string\", in `list`"
        );
        assert_eq!(
            detail(fields.required("assistant_id")),
            "\"assistant_id\" is a required property"
        );
        assert_eq!(
            detail(Fields::of(&value!([])).err().unwrap()),
            "[] is not of type \"object\""
        );
        assert_eq!(fields.map("nothing").unwrap(), None);
    }

    #[test]
    fn a_wrong_value_of_any_size_is_quoted_in_short() {
        let body = value!({"x": "é".repeat(1_000_000)});
        let error = Fields::of(&body).unwrap().number("x").unwrap_err();
        assert!(error.detail.len() < 300);
    }
}
