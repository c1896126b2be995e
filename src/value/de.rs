//! Deserializes values into Rust types, and any self-describing serde format into values.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{DecodeError, Map, Value, share};

/// Reads a Rust type from a value, by the rules of `serde_json`. Fields of type [`Value`] share
/// the source's data.
///
/// # Errors
/// [`DecodeError`] names what was expected and the path in the value.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(value)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(
            share::NAME,
            Tree {
                large: None,
                root: true,
            },
        )
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Map(map) => Ok(Arc::unwrap_or_clone(map)),
            other => Err(D::Error::custom(format_args!(
                "expected a map, not a {}",
                other.type_name()
            ))),
        }
    }
}

/// Builds a value from the data of any deserializer.
#[derive(Clone, Copy)]
pub(super) struct Tree<'a> {
    /// Set when a float occurs that may be an integer beyond 64 bits.
    large: Option<&'a Cell<bool>>,
    /// Only the outermost value may be in the slot as a whole.
    root: bool,
}

impl<'a> Tree<'a> {
    pub(super) fn watching(large: &'a Cell<bool>) -> Self {
        Tree {
            large: Some(large),
            root: false,
        }
    }

    fn inner(self) -> Self {
        Tree {
            root: false,
            ..self
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i128<E: de::Error>(self, v: i128) -> Result<Value, E> {
        i64::try_from(v)
            .map(Value::Int)
            .or_else(|_| u64::try_from(v).map(Value::from))
            .map_err(|_| E::custom(format_args!("integer {v} does not fit 64 bits")))
    }
    fn visit_u128<E: de::Error>(self, v: u128) -> Result<Value, E> {
        u64::try_from(v)
            .map(Value::from)
            .map_err(|_| E::custom(format_args!("integer {v} does not fit 64 bits")))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        // Everything from 2^63 on is integral, so the parser may have rounded an integer.
        const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
        if let Some(large) = self.large
            && v.abs() >= TWO_POW_63
        {
            large.set(true);
        }
        Ok(Value::Float(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_bytes<E>(self, v: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(v.into()))
    }
    fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Value, E> {
        Ok(Value::Bytes(v.into()))
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: de::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self.inner())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        let handed_over = if self.root { share::take() } else { None };
        Ok(handed_over.unwrap_or_default())
    }
    fn visit_newtype_struct<D: de::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self.inner())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(1024));
        while let Some(item) = seq.next_element_seed(self.inner())? {
            items.push(item);
        }
        Ok(Value::list(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::with_capacity(access.size_hint().unwrap_or(0).min(1024));
        while let Some(key) = access.next_key_seed(Key)? {
            let value = access.next_value_seed(self.inner())?;
            map.insert(key, value);
        }
        Ok(Value::map(map))
    }
}

/// Reads a map key without an intermediate `String`.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Arc<str>;

    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<Arc<str>, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text key")
    }
    fn visit_str<E>(self, v: &str) -> Result<Arc<str>, E> {
        Ok(v.into())
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(b) => Unexpected::Bool(*b),
        Value::Int(i) => Unexpected::Signed(*i),
        Value::Uint(u) => Unexpected::Unsigned(*u),
        Value::Float(f) => Unexpected::Float(*f),
        Value::Str(s) => Unexpected::Str(s),
        Value::Bytes(b) => Unexpected::Bytes(b),
        Value::List(_) => Unexpected::Seq,
        Value::Map(_) => Unexpected::Map,
        Value::Opaque(_) => Unexpected::Other("value of an unknown encoding"),
    }
}

impl<'de> de::Deserializer<'de> for &'de Value {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i) => match u64::try_from(*i) {
                Ok(u) => visitor.visit_u64(u),
                Err(_) => visitor.visit_i64(*i),
            },
            Value::Uint(u) => visitor.visit_u64(*u),
            Value::Float(f) => visitor.visit_f64(*f),
            Value::Str(s) => visitor.visit_borrowed_str(s),
            Value::Bytes(b) => visitor.visit_borrowed_bytes(b),
            Value::List(items) => {
                let mut access = Items {
                    items: items.iter(),
                    at: 0,
                };
                let made = visitor.visit_seq(&mut access)?;
                match access.items.len() {
                    0 => Ok(made),
                    _ => Err(DecodeError::invalid_length(
                        items.len(),
                        &"fewer items in the list",
                    )),
                }
            }
            Value::Map(map) => visitor.visit_map(Fields {
                fields: map.iter(),
                value: None,
            }),
            Value::Opaque(_) => Err(DecodeError::invalid_type(unexpected(self), &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Value::Null => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name != share::NAME {
            return visitor.visit_newtype_struct(self);
        }
        share::send(self.clone());
        let made = visitor.visit_unit();
        // Closes the slot if the visitor did not take the value.
        share::take();
        made
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self {
            Value::Str(name) => visitor.visit_enum(Variant {
                name,
                content: None,
            }),
            Value::Map(map) if map.len() == 1 => match map.iter().next() {
                Some((name, content)) => visitor.visit_enum(Variant {
                    name,
                    content: Some(content),
                }),
                None => Err(DecodeError::invalid_type(Unexpected::Map, &visitor)),
            },
            Value::Map(_) => Err(DecodeError::invalid_value(
                Unexpected::Map,
                &"a map with a single key",
            )),
            other => Err(DecodeError::invalid_type(
                unexpected(other),
                &"a variant name or map",
            )),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        seq tuple tuple_struct map struct identifier
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for &'de Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(item) = self.items.next() else {
            return Ok(None);
        };
        let made = seed.deserialize(item).map_err(|e| e.under_index(self.at))?;
        self.at += 1;
        Ok(Some(made))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'de> {
    fields: indexmap::map::Iter<'de, Arc<str>, Value>,
    value: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, value)) = self.fields.next() else {
            return Ok(None);
        };
        self.value = Some((key, value));
        seed.deserialize(FieldName(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let (key, value) = self
            .value
            .take()
            .ok_or_else(|| DecodeError::custom("a map value was asked for before its key"))?;
        seed.deserialize(value).map_err(|e| e.under_key(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// A map key. Keys are text here, so numbers and truth values are read from their text.
struct FieldName<'de>(&'de str);

macro_rules! parsed_key {
    ($($method:ident => $visit:ident : $t:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            match self.0.parse::<$t>() {
                Ok(v) => visitor.$visit(v),
                Err(_) => Err(DecodeError::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for FieldName<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(self.0)
    }

    parsed_key! {
        deserialize_bool => visit_bool: bool,
        deserialize_i8 => visit_i8: i8,
        deserialize_i16 => visit_i16: i16,
        deserialize_i32 => visit_i32: i32,
        deserialize_i64 => visit_i64: i64,
        deserialize_i128 => visit_i128: i128,
        deserialize_u8 => visit_u8: u8,
        deserialize_u16 => visit_u16: u16,
        deserialize_u32 => visit_u32: u32,
        deserialize_u64 => visit_u64: u64,
        deserialize_u128 => visit_u128: u128,
        deserialize_f32 => visit_f32: f32,
        deserialize_f64 => visit_f64: f64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(Variant {
            name: self.0,
            content: None,
        })
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct Variant<'de> {
    name: &'de str,
    content: Option<&'de Value>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), DecodeError> {
        Ok((seed.deserialize(FieldName(self.name))?, self))
    }
}

impl<'de> Variant<'de> {
    fn content(self, wanted: &'static str) -> Result<(&'de str, &'de Value), DecodeError> {
        match self.content {
            Some(content) => Ok((self.name, content)),
            None => Err(DecodeError::invalid_type(Unexpected::UnitVariant, &wanted)),
        }
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.content {
            None | Some(Value::Null) => Ok(()),
            Some(other) => Err(DecodeError::invalid_type(
                unexpected(other),
                &"a variant without data",
            )),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        let (name, content) = self.content("a variant with data")?;
        seed.deserialize(content).map_err(|e| e.under_key(name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        let (name, content) = self.content("a variant with a list of data")?;
        de::Deserializer::deserialize_any(content, visitor).map_err(|e| e.under_key(name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let (name, content) = self.content("a variant with fields")?;
        de::Deserializer::deserialize_any(content, visitor).map_err(|e| e.under_key(name))
    }
}
