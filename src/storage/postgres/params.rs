//! Values on their way to and from Postgres.

use std::{borrow::Cow, error::Error as StdError, sync::Arc};

use bytes::{BufMut, BytesMut};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use crate::{
    checkpoint::{Error, Version, codec},
    time::Timestamp,
    value::{Map, Value},
};

/// Parameters of a statement.
pub(super) type Params<'a, const N: usize> = [&'a (dyn ToSql + Sync); N];

type Fault = Box<dyn StdError + Sync + Send>;

/// Microseconds between the Unix epoch and Postgres's, 2000-01-01.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

/// A `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) Timestamp);

impl<'a> FromSql<'a> for Time {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        let since = i64::from_sql(&Type::INT8, raw)?;
        Ok(Self(Timestamp(since.saturating_add(POSTGRES_EPOCH))))
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for Time {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.put_i64(self.0.0.saturating_sub(POSTGRES_EPOCH));
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
    to_sql_checked!();
}

/// JSON text for a `jsonb` parameter. Never holds what `jsonb` refuses.
#[derive(Debug)]
pub(super) struct Json<'a>(Cow<'a, str>);

impl<'a> Json<'a> {
    /// `jsonb` cannot hold NUL. Texts given to storage are free of it, so this is the last line
    /// of defence: an escaped NUL becomes U+FFFD instead of failing the transaction.
    pub(super) fn new(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        Self(if text.contains("\\u0000") {
            Cow::Owned(without_nul(&text))
        } else {
            text
        })
    }

    pub(super) fn of_map(map: &Map) -> Self {
        Self::new(Value::Map(Arc::new(map.clone())).to_json())
    }

    pub(super) fn of_value(value: &Value) -> Self {
        Self::new(value.to_json())
    }
}

/// A backslash starts an escape of two characters, so `\\u0000` (an escaped backslash) stays.
fn without_nul(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("\\u0000") {
            out.push_str("\\ufffd");
            rest = after;
        } else {
            let mut chars = rest.chars();
            out.extend(chars.by_ref().take(2));
            rest = chars.as_str();
        }
    }
    out.push_str(rest);
    out
}

impl ToSql for Json<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        // The version of jsonb's binary form.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
    to_sql_checked!();
}

/// JSON text of a `jsonb` column.
#[derive(Debug)]
pub(super) struct JsonText(pub(super) String);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        match raw.split_first() {
            Some((1, text)) => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("unknown form of jsonb".into()),
        }
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

impl JsonText {
    pub(super) fn value(&self) -> Result<Value, Error> {
        Value::from_json_slice(self.0.as_bytes()).map_err(|error| Error::Corrupt(error.to_string()))
    }

    pub(super) fn map(&self) -> Result<Map, Error> {
        match self.value()? {
            Value::Map(map) => Ok(Arc::unwrap_or_clone(map)),
            _ => Err(Error::Corrupt("expected a JSON object".to_owned())),
        }
    }
}

/// A column, or the reason why this program cannot read it.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, Error> {
    row.try_get(name)
        .map_err(|error| Error::Corrupt(format!("column {name}: {error}")))
}

/// A stored word.
pub(super) fn word<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|error: T::Err| Error::Corrupt(error.to_string()))
}

pub(super) fn version(text: &str) -> Result<Version, Error> {
    word(text)
}

/// A value kept in the codec.
pub(super) fn decode(tag: &str, bytes: &[u8]) -> Result<Value, Error> {
    codec::decode(tag, bytes).map_err(|error| Error::Corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_replaced_but_an_escaped_backslash_is_not_mistaken_for_it() {
        let json = Json::new(r#"{"a":"x\u0000y","b":"\\u0000","c":"\\\u0000"}"#);
        assert_eq!(json.0, r#"{"a":"x\ufffdy","b":"\\u0000","c":"\\\ufffd"}"#);
    }
}
