//! What the graphs are built of: channels by form, and values as Python writes them.

use std::sync::Arc;

use backstitch::{
    channel::{Kind, Reducer},
    graph::{Compiled, Goto, Invalid, Untyped},
    prelude::*,
    value,
};

pub type Built = Result<Arc<Compiled>, Invalid>;

pub fn state(channels: &[(&str, Form)]) -> Graph<Untyped> {
    channels
        .iter()
        .fold(Graph::untyped(), |graph, (name, form)| {
            let list = |kind: Reducer| (Kind::Aggregate(kind), json!({"type": "array"}));
            let (kind, schema) = match form {
                Form::Last(None) => (Kind::Last, json!({})),
                Form::Last(Some(kind)) => (Kind::Last, json!({ "type": kind })),
                Form::Sum => (Kind::Aggregate(Reducer::sum()), json!({"type": "integer"})),
                Form::Append => list(Reducer::append()),
                Form::Messages => list(Reducer::messages()),
            };
            graph.channel_with(*name, kind, schema)
        })
}

pub enum Form {
    /// Replaced by every write; the JSON type, if it has one.
    Last(Option<&'static str>),
    Sum,
    Append,
    Messages,
}

pub const TEXT: Form = Form::Last(Some("string"));
pub const INTEGER: Form = Form::Last(Some("integer"));
pub const BOOLEAN: Form = Form::Last(Some("boolean"));

/// A channel the node reads.
pub fn get(ctx: &Ctx, key: &str) -> Option<Value> {
    ctx.input().get(key).cloned()
}

/// Whether Python takes the value for true.
pub fn truthy(value: Option<Value>) -> bool {
    match value.unwrap_or_default() {
        Value::Null => false,
        Value::Bool(yes) => yes,
        Value::Str(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty(),
        number => number.as_f64() != Some(0.0),
    }
}

/// `str(value)` in Python.
pub fn text(value: &Value) -> String {
    match value {
        Value::Str(text) => text.to_string(),
        other => repr(other),
    }
}

/// `repr(value)` in Python.
pub fn repr(value: &Value) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Str(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::Str(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
        }
        Value::List(items) => format!("[{}]", join(items.iter().map(repr).collect())),
        Value::Map(map) => {
            let field = |(key, value): (&Arc<str>, &Value)| {
                format!("{}: {}", repr(&value!(key)), repr(value))
            };
            format!("{{{}}}", join(map.iter().map(field).collect()))
        }
        other => other.to_json(),
    }
}

pub fn to(node: &str) -> Goto {
    Goto {
        node: node.into(),
        arg: None,
    }
}
