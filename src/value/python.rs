//! Values in Python's notation, in which LangGraph's error messages quote values.

use std::fmt::Write as _;

use super::Value;

impl Value {
    /// The text that Python prints for the value: a text as it is, and inside lists and maps in
    /// quotes.
    pub(crate) fn to_python(&self) -> String {
        match self {
            Self::Str(text) => text.to_string(),
            value => {
                let mut out = String::new();
                write(&mut out, value);
                out
            }
        }
    }
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Str(text) => quote(out, text),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index);
                write(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                separate(out, index);
                quote(out, key);
                out.push_str(": ");
                write(out, value);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_json()),
    }
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push_str(", ");
    }
}

/// In single quotes, or in double ones if that saves a backslash.
fn quote(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char == quote => {
                out.push('\\');
                out.push(char);
            }
            char if char.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{:02x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use crate::{value, value::Value};

    #[test]
    fn values_are_written_as_python_prints_them() {
        for (value, text) in [
            (value!("a'b"), "a'b"),
            (value!(true), "True"),
            (Value::Null, "None"),
            (value!(1.5), "1.5"),
            (
                value!(["a", true, null, [false]]),
                "['a', True, None, [False]]",
            ),
            (value!({"a": "b'c", "d": {}}), "{'a': \"b'c\", 'd': {}}"),
            (value!(["\"'\\\n\u{1}é"]), "['\"\\'\\\\\\n\\x01é']"),
        ] {
            assert_eq!(value.to_python(), text);
        }
    }
}
