//! Serializes Rust types into values, and values into any serde format.

use std::fmt::Display;
use std::sync::Arc;

use serde::ser::{self, Impossible, Serialize, SerializeMap};

use super::{EncodeError, MAX_DEPTH, Map, Value, share};

/// Turns a Rust value into a [`Value`], by the rules of `serde_json`: structs are maps, enums
/// externally tagged, `None` is null. Values inside are shared, not copied.
///
/// # Errors
/// [`EncodeError`] for map keys that are not text-like, integers beyond 64 bits, data nested more
/// than [`MAX_DEPTH`] levels deep, and what the type's own `Serialize` raises.
pub fn to_value(source: &(impl Serialize + ?Sized)) -> Result<Value, EncodeError> {
    source.serialize(Serializer { depth: 0 })
}

impl Serialize for Value {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(share::NAME, &Content(self))
    }
}

impl Serialize for Map {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_map(self, serializer)
    }
}

fn serialize_map<S: ser::Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
    let mut out = serializer.serialize_map(Some(map.len()))?;
    for (key, value) in map {
        out.serialize_entry(&**key, &Part(value))?;
    }
    out.end()
}

/// The content of the newtype as which a value announces itself.
struct Content<'a>(&'a Value);

impl Serialize for Content<'_> {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if share::offer(self.0) {
            return serializer.serialize_unit();
        }
        Part(self.0).serialize(serializer)
    }
}

/// A value that is written out as it is.
struct Part<'a>(&'a Value);

impl Serialize for Part<'_> {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Int(i) => serializer.serialize_i64(*i),
            Value::Uint(u) => serializer.serialize_u64(*u),
            Value::Float(f) => serializer.serialize_f64(*f),
            Value::Str(s) => serializer.serialize_str(s),
            Value::List(items) => serializer.collect_seq(items.iter().map(Part)),
            Value::Map(map) => serialize_map(map, serializer),
            Value::Bytes(bytes) if serializer.is_human_readable() => {
                serializer.serialize_str(&super::json::base64(bytes))
            }
            Value::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Value::Opaque(opaque) => serialize_map(&super::json::opaque_map(opaque), serializer),
        }
    }
}

#[derive(Clone, Copy)]
struct Serializer {
    depth: usize,
}

impl Serializer {
    fn deeper(self) -> Result<Self, EncodeError> {
        if self.depth == MAX_DEPTH {
            return Err(EncodeError::TooDeep);
        }
        Ok(Serializer {
            depth: self.depth + 1,
        })
    }

    fn list(self, len: usize) -> Result<List, EncodeError> {
        Ok(List {
            inner: self.deeper()?,
            items: Vec::with_capacity(len.min(1024)),
            variant: None,
        })
    }

    fn fields(self, len: usize) -> Result<Fields, EncodeError> {
        Ok(Fields {
            inner: self.deeper()?,
            map: Map::with_capacity(len.min(1024)),
            key: None,
            variant: None,
        })
    }
}

fn tagged(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Value::map(Map::from([(name, value)])),
        None => value,
    }
}

/// Methods for what is a value already.
macro_rules! plain {
    ($($method:ident($t:ty)),*) => {$(
        fn $method(self, v: $t) -> Result<Value, EncodeError> {
            Ok(v.into())
        }
    )*};
}

impl ser::Serializer for Serializer {
    type Ok = Value;
    type Error = EncodeError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    plain!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_str(&str)
    );

    fn serialize_i128(self, v: i128) -> Result<Value, EncodeError> {
        if let Ok(i) = i64::try_from(v) {
            return Ok(Value::Int(i));
        }
        let u = u64::try_from(v).map_err(|_| EncodeError::IntegerTooLarge(v.to_string()))?;
        Ok(u.into())
    }
    fn serialize_u128(self, v: u128) -> Result<Value, EncodeError> {
        let u = u64::try_from(v).map_err(|_| EncodeError::IntegerTooLarge(v.to_string()))?;
        Ok(u.into())
    }
    fn serialize_char(self, v: char) -> Result<Value, EncodeError> {
        Ok(Value::str(&*v.encode_utf8(&mut [0; 4])))
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<Value, EncodeError> {
        Ok(Value::Bytes(v.into()))
    }
    fn serialize_none(self) -> Result<Value, EncodeError> {
        Ok(Value::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<Value, EncodeError> {
        v.serialize(self)
    }
    fn serialize_unit(self) -> Result<Value, EncodeError> {
        Ok(Value::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, EncodeError> {
        Ok(Value::Null)
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, EncodeError> {
        Ok(variant.into())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        v: &T,
    ) -> Result<Value, EncodeError> {
        if name != share::NAME {
            return v.serialize(self);
        }
        share::expect();
        let copy = v.serialize(self);
        match share::take() {
            Some(shared) if shared.is_deeper_than(MAX_DEPTH - self.depth) => {
                Err(EncodeError::TooDeep)
            }
            Some(shared) => Ok(shared),
            None => copy,
        }
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        v: &T,
    ) -> Result<Value, EncodeError> {
        Ok(tagged(Some(variant), v.serialize(self.deeper()?)?))
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<List, EncodeError> {
        self.list(len.unwrap_or(0))
    }
    fn serialize_tuple(self, len: usize) -> Result<List, EncodeError> {
        self.list(len)
    }
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<List, EncodeError> {
        self.list(len)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<List, EncodeError> {
        Ok(List {
            variant: Some(variant),
            ..self.deeper()?.list(len)?
        })
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Fields, EncodeError> {
        self.fields(len.unwrap_or(0))
    }
    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Fields, EncodeError> {
        self.fields(len)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Fields, EncodeError> {
        Ok(Fields {
            variant: Some(variant),
            ..self.deeper()?.fields(len)?
        })
    }
}

/// A list under construction.
struct List {
    inner: Serializer,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), EncodeError> {
        self.items.push(item.serialize(self.inner)?);
        Ok(())
    }

    fn finish(self) -> Result<Value, EncodeError> {
        Ok(tagged(self.variant, Value::list(self.items)))
    }
}

macro_rules! list_serializer {
    ($($name:ident :: $method:ident),*) => {$(
        impl ser::$name for List {
            type Ok = Value;
            type Error = EncodeError;
            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), EncodeError> {
                self.push(item)
            }
            fn end(self) -> Result<Value, EncodeError> {
                self.finish()
            }
        }
    )*};
}
list_serializer!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// A map under construction.
struct Fields {
    inner: Serializer,
    map: Map,
    key: Option<Arc<str>>,
    variant: Option<&'static str>,
}

impl ser::SerializeMap for Fields {
    type Ok = Value;
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EncodeError> {
        self.key = Some(key.serialize(Key)?);
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), EncodeError> {
        let key = self
            .key
            .take()
            .ok_or_else(|| EncodeError::Custom("a map value came before its key".into()))?;
        self.map.insert(key, v.serialize(self.inner)?);
        Ok(())
    }
    fn end(self) -> Result<Value, EncodeError> {
        Ok(tagged(self.variant, Value::map(self.map)))
    }
}

macro_rules! fields_serializer {
    ($($name:ident),*) => {$(
        impl ser::$name for Fields {
            type Ok = Value;
            type Error = EncodeError;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                v: &T,
            ) -> Result<(), EncodeError> {
                self.map.insert(key, v.serialize(self.inner)?);
                Ok(())
            }
            fn end(self) -> Result<Value, EncodeError> {
                Ok(tagged(self.variant, Value::map(self.map)))
            }
        }
    )*};
}
fields_serializer!(SerializeStruct, SerializeStructVariant);

/// Serializes map keys to text.
struct Key;

impl Key {
    fn show(v: impl Display) -> Result<Arc<str>, EncodeError> {
        Ok(v.to_string().into())
    }
}

macro_rules! key_shown {
    ($($method:ident($t:ty)),*) => {$(
        fn $method(self, v: $t) -> Result<Arc<str>, EncodeError> {
            Key::show(v)
        }
    )*};
}

/// Methods for what is no key, with its name in the error.
macro_rules! key_refused {
    ($($what:literal: $($method:ident$(<$t:ident>)?($($arg:tt: $arg_type:ty),*) -> $made:ty),*;)*) => {$($(
        fn $method$(<$t: Serialize + ?Sized>)?(self, $($arg: $arg_type),*) -> Result<$made, EncodeError> {
            Err(EncodeError::Key($what))
        }
    )*)*};
}

type Name = &'static str;

impl ser::Serializer for Key {
    type Ok = Arc<str>;
    type Error = EncodeError;
    type SerializeSeq = Impossible<Arc<str>, EncodeError>;
    type SerializeTuple = Impossible<Arc<str>, EncodeError>;
    type SerializeTupleStruct = Impossible<Arc<str>, EncodeError>;
    type SerializeTupleVariant = Impossible<Arc<str>, EncodeError>;
    type SerializeMap = Impossible<Arc<str>, EncodeError>;
    type SerializeStruct = Impossible<Arc<str>, EncodeError>;
    type SerializeStructVariant = Impossible<Arc<str>, EncodeError>;

    key_shown!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_u128(u128),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char)
    );

    fn serialize_str(self, v: &str) -> Result<Arc<str>, EncodeError> {
        Ok(v.into())
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Arc<str>, EncodeError> {
        Ok(variant.into())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<Arc<str>, EncodeError> {
        v.serialize(self)
    }
    key_refused! {
        "an option": serialize_some<T>(_: &T) -> Arc<str>, serialize_none() -> Arc<str>;
        "bytes": serialize_bytes(_: &[u8]) -> Arc<str>;
        "a unit": serialize_unit() -> Arc<str>, serialize_unit_struct(_: Name) -> Arc<str>;
        "a list": serialize_seq(_: Option<usize>) -> Self::SerializeSeq;
        "a tuple": serialize_tuple(_: usize) -> Self::SerializeTuple,
            serialize_tuple_struct(_: Name, _: usize) -> Self::SerializeTupleStruct;
        "a map": serialize_map(_: Option<usize>) -> Self::SerializeMap;
        "a struct": serialize_struct(_: Name, _: usize) -> Self::SerializeStruct;
        "an enum with data": serialize_newtype_variant<T>(_: Name, _: u32, _: Name, _: &T) -> Arc<str>,
            serialize_tuple_variant(_: Name, _: u32, _: Name, _: usize) -> Self::SerializeTupleVariant,
            serialize_struct_variant(_: Name, _: u32, _: Name, _: usize) -> Self::SerializeStructVariant;
    }
}
