//! The engine's own dynamic value: channels have it, HTTP carries it as JSON and checkpoints
//! store it. Cloning is cheap (containers are shared), maps keep insertion order.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

mod contain;
mod convert;
mod de;
mod error;
mod json;
mod map;
mod memory;
mod python;
mod schema;
mod ser;
mod share;

pub(crate) use contain::contains_map;
pub use de::from_value;
pub use error::{DecodeError, EncodeError, JsonError};
pub use map::Map;
pub use ser::to_value;

/// How deeply lists and maps may be nested in a value that comes from outside.
pub const MAX_DEPTH: usize = 128;

/// A dynamic value.
///
/// Lists and maps are behind an [`Arc`], so that a clone shares them; [`Value::make_list_mut`]
/// and [`Value::make_map_mut`] change them in place when they are not shared.
#[derive(Clone, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// An integer that fits 64 bits with a sign.
    Int(i64),
    /// An integer above `i64::MAX`; smaller ones are always [`Value::Int`].
    Uint(u64),
    /// A floating point number; an integral one stays a float.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// Raw bytes; base64 text in JSON.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map with text keys, in insertion order.
    Map(Arc<Map>),
    /// Bytes in an encoding that is unknown to this program, which stores them unchanged.
    Opaque(Arc<Opaque>),
}

/// An encoded value whose type tag is unknown: loaded and stored unchanged, never interpreted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opaque {
    /// The tag that names the encoding.
    pub tag: Arc<str>,
    /// The encoded value.
    pub bytes: Bytes,
}

impl Value {
    /// Text.
    pub fn str(text: impl Into<Arc<str>>) -> Self {
        Value::Str(text.into())
    }

    /// A list of these items.
    pub fn list(items: Vec<Value>) -> Self {
        Value::List(Arc::new(items))
    }

    /// A map.
    pub fn map(map: Map) -> Self {
        Value::Map(Arc::new(map))
    }

    /// Whether this is [`Value::Null`].
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The integer, if this is one that fits `i64`. Floats are not converted.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The integer, if this is one that is not negative. Floats are not converted.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(i) => u64::try_from(*i).ok(),
            Value::Uint(u) => Some(*u),
            _ => None,
        }
    }

    /// The number as a float, if this is a number; big integers are rounded.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(i) => Some(*i as f64),
            Value::Uint(u) => Some(*u as f64),
            Value::Float(f) => Some(*f),
            _ => None,
        }
    }

    /// The text, if this is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The bytes, if these are bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(b) => Some(b),
            _ => None,
        }
    }

    /// The items, if this is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The map, if this is one.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// A field of a map; `None` if this is no map or has no such field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map()?.get(key)
    }

    /// The items for changing. Copies the list (not its items' contents) only if it is shared.
    pub fn make_list_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::List(items) => Some(Arc::make_mut(items)),
            _ => None,
        }
    }

    /// The map for changing. Copies the map (not its values' contents) only if it is shared.
    pub fn make_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Map(map) => Some(Arc::make_mut(map)),
            _ => None,
        }
    }

    /// The kind of this value in words, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) | Value::Uint(_) => "integer",
            Value::Float(_) => "float",
            Value::Str(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Opaque(_) => "opaque value",
        }
    }

    /// Whether lists and maps are nested more than `limit` levels deep.
    ///
    /// A decoder refuses values that are nested deeper than [`MAX_DEPTH`], so a value from a
    /// program is checked here before it is stored.
    pub(crate) fn is_deeper_than(&self, limit: usize) -> bool {
        match self {
            Value::List(items) => {
                limit == 0 || items.iter().any(|item| item.is_deeper_than(limit - 1))
            }
            Value::Map(map) => limit == 0 || map.values().any(|v| v.is_deeper_than(limit - 1)),
            _ => false,
        }
    }

    /// How many items at the start of two lists are equal. Items that both lists share are recognised by their pointers,
    /// without a look at their contents: every superstep of a long conversation compares all of its messages.
    pub(crate) fn common_start(old: &[Value], new: &[Value]) -> usize {
        if std::ptr::eq(old, new) {
            return old.len();
        }
        let is_shared = |(a, b): &(&Value, &Value)| match (a, b) {
            (Value::Map(a), Value::Map(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_identical(b),
        };
        let is_equal = |both: &(&Value, &Value)| is_shared(both) || both.0 == both.1;
        old.iter().zip(new).take_while(is_equal).count()
    }

    /// Whether two values share one allocation, or are equal scalars. The items of containers are
    /// not compared, so `false` does not mean that the values differ.
    pub(crate) fn is_identical(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(a), Value::List(b)) => Arc::ptr_eq(a, b),
            (Value::Map(a), Value::Map(b)) => Arc::ptr_eq(a, b),
            (Value::Opaque(a), Value::Opaque(b)) => Arc::ptr_eq(a, b),
            (Value::Str(a), Value::Str(b)) => Arc::ptr_eq(a, b),
            (Value::List(_) | Value::Map(_), _) => false,
            _ => self == other,
        }
    }
}

/// Floats are compared by their bits, so that a value always equals itself and 0.0 differs from
/// -0.0. The order of a map's keys does not matter.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Uint(a), Value::Uint(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (Value::Str(a), Value::Str(b)) => Arc::ptr_eq(a, b) || a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::List(a), Value::List(b)) => Arc::ptr_eq(a, b) || a == b,
            (Value::Map(a), Value::Map(b)) => Arc::ptr_eq(a, b) || a == b,
            (Value::Opaque(a), Value::Opaque(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => b.fmt(f),
            Value::Int(i) => i.fmt(f),
            Value::Uint(u) => u.fmt(f),
            Value::Float(x) => x.fmt(f),
            Value::Str(s) => s.fmt(f),
            Value::Bytes(b) => fmt::Debug::fmt(b, f),
            Value::List(items) => items.fmt(f),
            Value::Map(map) => map.fmt(f),
            Value::Opaque(opaque) => opaque.fmt(f),
        }
    }
}

/// Compact JSON, as [`Value::to_json`].
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// Makes a [`Value`] from JSON-like text, with expressions as values.
///
/// An expression may be anything that converts into a value.
///
/// ```
/// use backstitch::value;
/// let name = "Ada";
/// let v = value!({"name": name, "tags": ["a", null, 1 + 1]});
/// assert_eq!(v.to_json(), r#"{"name":"Ada","tags":["a",null,2]}"#);
/// ```
#[macro_export]
macro_rules! value {
    // Items of a list: the finished ones are in the brackets, the others follow.
    (@list [$($done:expr,)*]) => {
        $crate::value::Value::list(::std::vec![$($done,)*])
    };
    (@list [$($done:expr,)*] null $(, $($rest:tt)*)?) => {
        $crate::value!(@list [$($done,)* $crate::value!(null),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::value!(@list [$($done,)* $crate::value!([$($inner)*]),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::value!(@list [$($done,)* $crate::value!({$($inner)*}),] $($($rest)*)?)
    };
    (@list [$($done:expr,)*] $item:expr $(, $($rest:tt)*)?) => {
        $crate::value!(@list [$($done,)* $crate::value!($item),] $($($rest)*)?)
    };
    // Fields of a map, inserted one by one.
    (@map $map:ident) => {};
    (@map $map:ident $key:tt : null $(, $($rest:tt)*)?) => {
        $map.insert($key, $crate::value!(null));
        $crate::value!(@map $map $($($rest)*)?);
    };
    (@map $map:ident $key:tt : [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $map.insert($key, $crate::value!([$($inner)*]));
        $crate::value!(@map $map $($($rest)*)?);
    };
    (@map $map:ident $key:tt : {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $map.insert($key, $crate::value!({$($inner)*}));
        $crate::value!(@map $map $($($rest)*)?);
    };
    (@map $map:ident $key:tt : $item:expr $(, $($rest:tt)*)?) => {
        $map.insert($key, $crate::value!($item));
        $crate::value!(@map $map $($($rest)*)?);
    };
    (null) => { $crate::value::Value::Null };
    ([$($inner:tt)*]) => { $crate::value!(@list [] $($inner)*) };
    ({}) => { $crate::value::Value::map($crate::value::Map::new()) };
    ({$($inner:tt)+}) => {{
        let mut map = $crate::value::Map::new();
        $crate::value!(@map map $($inner)+);
        $crate::value::Value::map(map)
    }};
    ($other:expr) => { $crate::value::Value::from($other) };
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
