//! Conversions between [`Value`] and plain Rust and `serde_json` types.

use std::borrow::Cow;
use std::ops::Index;
use std::sync::Arc;

use bytes::Bytes;

use super::{Map, Value};

macro_rules! from_small_integer {
    ($($t:ty),*) => {$(
        impl From<$t> for Value {
            fn from(i: $t) -> Self {
                Value::Int(i64::from(i))
            }
        }
    )*};
}
from_small_integer!(i8, i16, i32, i64, u8, u16, u32);

impl From<u64> for Value {
    fn from(u: u64) -> Self {
        i64::try_from(u).map_or(Value::Uint(u), Value::Int)
    }
}

impl From<usize> for Value {
    fn from(u: usize) -> Self {
        Value::from(u as u64)
    }
}

macro_rules! from_as_is {
    ($($t:ty => $make:expr),* $(,)?) => {$(
        impl From<$t> for Value {
            fn from(x: $t) -> Self {
                $make(x)
            }
        }
    )*};
}
from_as_is! {
    bool => Value::Bool,
    f32 => |f| Value::Float(f64::from(f)),
    f64 => Value::Float,
    &str => |s: &str| Value::Str(s.into()),
    String => |s: String| Value::Str(s.into()),
    &String => |s: &String| Value::Str(s.as_str().into()),
    Cow<'_, str> => |s: Cow<'_, str>| Value::Str(s.into()),
    Arc<str> => Value::Str,
    &Arc<str> => |s: &Arc<str>| Value::Str(Arc::clone(s)),
    Arc<[u8]> => Value::Bytes,
    Bytes => |bytes: Bytes| Value::Bytes((&*bytes).into()),
    Map => Value::map,
    Arc<Map> => Value::Map,
    Arc<Vec<Value>> => Value::List,
    &Value => |v: &Value| v.clone(),
    () => |()| Value::Null,
    serde_json::Value => Value::from_serde_json,
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(item: Option<T>) -> Self {
        item.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Value::list(items.into_iter().map(Into::into).collect())
    }
}

/// A field of a map, or null where there is none.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        static NULL: Value = Value::Null;
        self.get(key).unwrap_or(&NULL)
    }
}

/// The value of a key, or null where there is none.
impl Index<&str> for Map {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        static NULL: Value = Value::Null;
        self.get(key).unwrap_or(&NULL)
    }
}

/// An item of a list, or null where there is none.
impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, at: usize) -> &Value {
        static NULL: Value = Value::Null;
        self.as_list()
            .and_then(|items| items.get(at))
            .unwrap_or(&NULL)
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(*other)
    }
}

impl PartialEq<i64> for Value {
    fn eq(&self, other: &i64) -> bool {
        self.as_i64() == Some(*other)
    }
}

/// As the JSON that clients see: what has a form of its own here is compared by its JSON.
impl PartialEq<serde_json::Value> for Value {
    fn eq(&self, other: &serde_json::Value) -> bool {
        self.to_json_value() == *other
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, other: &bool) -> bool {
        self.as_bool() == Some(*other)
    }
}

impl Value {
    /// Converts to a `serde_json` value: bytes become base64 text, NaN and infinities null.
    pub fn to_json_value(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => Json::from(*i),
            Value::Uint(u) => Json::from(*u),
            Value::Float(f) => Json::from(*f),
            Value::Str(s) => Json::String(s.to_string()),
            Value::List(items) => Json::Array(items.iter().map(Value::to_json_value).collect()),
            Value::Map(map) => Json::Object(
                map.iter()
                    .map(|(k, v)| (k.to_string(), v.to_json_value()))
                    .collect(),
            ),
            Value::Bytes(bytes) => Json::String(super::json::base64(bytes)),
            Value::Opaque(opaque) => super::json::opaque_map(opaque)
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_json_value()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// Converts from a `serde_json` value.
    pub fn from_serde_json(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(b),
            Json::Number(n) => {
                if let Some(i) = n.as_i64() {
                    Value::Int(i)
                } else if let Some(u) = n.as_u64() {
                    Value::Uint(u)
                } else {
                    Value::Float(n.as_f64().unwrap_or(f64::NAN))
                }
            }
            Json::String(s) => Value::Str(s.into()),
            Json::Array(items) => items.into_iter().map(Value::from_serde_json).collect(),
            Json::Object(map) => Value::map(
                map.into_iter()
                    .map(|(k, v)| (Arc::from(k), Value::from_serde_json(v)))
                    .collect(),
            ),
        }
    }
}
