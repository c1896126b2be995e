//! Values on their way to and from Postgres.

use std::{borrow::Cow, error::Error as StdError, sync::Arc};

use bytes::{BufMut, BytesMut};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};
use uuid::Uuid;

use super::connection::{Object, Result, prepare};
use crate::{
    checkpoint::{Error, Version},
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

/// Postgres's `text` and `jsonb` cannot hold NUL, names of people can. It is stored as this
/// character and `0`; the character itself is stored as itself and `1`.
const ESCAPE: char = '\u{1a}';

/// A name on its way in.
pub(super) fn name(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match char {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, '1']),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// A name on its way out.
pub(super) fn unname(text: &str) -> Arc<str> {
    if !text.contains(ESCAPE) {
        return Arc::from(text);
    }
    let zero: String = [ESCAPE, '0'].into_iter().collect();
    let own: String = [ESCAPE, '1'].into_iter().collect();
    // The character is always followed by a digit, so neither step makes work for the other.
    Arc::from(text.replace(&zero, "\0").replace(&own, "\u{1a}"))
}

/// JSON text for a `jsonb` parameter, or for a `text` that filters read as `jsonb`. Strings and keys in it
/// are stored as [`name`] stores names.
#[derive(Debug)]
pub(super) struct Json<'a>(Cow<'a, str>);

impl<'a> Json<'a> {
    pub(super) fn new(text: impl Into<Cow<'a, str>>) -> Self {
        let text = positional(text.into());
        let plain = !text.contains("\\u0000") && !text.contains("\\u001");
        Self(if plain {
            text
        } else {
            Cow::Owned(rewrite(&text, |escape| match escape {
                "u0000" => Some("\\u001a0"),
                "u001a" | "u001A" => Some("\\u001a1"),
                _ => None,
            }))
        })
    }

    pub(super) fn of_map(map: &Map) -> Json<'static> {
        Json::new(Value::Map(Arc::new(map.clone())).to_json())
    }

    pub(super) fn of_value(value: &Value) -> Self {
        Self::new(value.to_json())
    }
}

/// Writes floats without exponents. `jsonb` would write `1e22` back as a whole number, which it
/// was not, and which does not fit; digits behind a point it keeps.
fn positional(text: Cow<'_, str>) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut at, mut copied, mut quoted) = (0, 0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'-' | b'0'..=b'9' if !quoted => {
                let part =
                    |byte: &u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = bytes[at..].iter().take_while(|byte| part(byte)).count();
                let number = &text[at..at + length];
                if number.contains(['e', 'E'])
                    && let Ok(float) = number.parse::<f64>()
                {
                    out.push_str(&text[copied..at]);
                    let digits = float.to_string();
                    out.push_str(&digits);
                    if !digits.contains('.') {
                        out.push_str(".0");
                    }
                    copied = at + length;
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return text;
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Replaces escapes of four digits, looked up by their text without the backslash. In `\\\\u0000`
/// the first backslash escapes the second, so nothing is replaced there.
fn rewrite(text: &str, replacement: impl Fn(&str) -> Option<&'static str>) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(new) = rest.get(1..6).and_then(&replacement) {
            out.push_str(new);
            rest = &rest[6..];
        } else {
            let mut chars = rest.chars();
            out.extend(chars.by_ref().take(2));
            rest = chars.as_str();
        }
    }
    out.push_str(rest);
    out
}

/// An envelope on its way in: what is JSON text is to be read as `jsonb`.
pub(super) fn envelope_bytes(envelope: &[u8]) -> Cow<'_, [u8]> {
    let text = envelope.first() == Some(&b'{');
    match std::str::from_utf8(envelope) {
        Ok(json) if text => match Json::new(json).0 {
            Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
            Cow::Owned(json) => Cow::Owned(json.into_bytes()),
        },
        _ => Cow::Borrowed(envelope),
    }
}

impl ToSql for Json<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        if *ty == Type::JSONB {
            out.put_u8(JSONB_FORM);
        }
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSONB | Type::TEXT)
    }
    to_sql_checked!();
}

/// The version of jsonb's binary form, its first byte.
const JSONB_FORM: u8 = 1;

/// JSON text of a column that was written as [`Json`].
#[derive(Debug)]
pub(super) struct JsonText(pub(super) String);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        let text = match raw.split_first() {
            _ if *ty == Type::TEXT => raw,
            Some((&JSONB_FORM, text)) => text,
            _ => return Err("unknown form of jsonb".into()),
        };
        Ok(Self::of_column(std::str::from_utf8(text)?))
    }
    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSONB | Type::TEXT)
    }
}

/// The reverse of what [`Json::new`] does.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("\\u001a0") {
            out.push_str("\\u0000");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\\u001a1") {
            out.push_str("\\u001a");
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

impl JsonText {
    /// The text as it was before [`Json::new`].
    pub(super) fn of_column(text: &str) -> Self {
        Self(if text.contains("\\u001a") {
            unescape(text)
        } else {
            text.to_owned()
        })
    }

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

/// An id that may be null.
pub(crate) fn id_if<T: From<Uuid>>(row: &Row, name: &str) -> Result<Option<T>, Error> {
    Ok(column::<Option<Uuid>>(row, name)?.map(T::from))
}

/// A text of people that may be null.
pub(crate) fn text_if(row: &Row, name: &str) -> Result<Option<Arc<str>>, Error> {
    Ok(column::<Option<&str>>(row, name)?.map(unname))
}

/// All rows of a statement that stays prepared.
pub(crate) async fn all<T>(
    db: &Object,
    text: &'static str,
    params: &[&(dyn ToSql + Sync)],
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<T>> {
    let statement = prepare(db, text).await?;
    let rows = db.query(&statement, params).await?;
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
}

/// The row of a statement that stays prepared, if there is one.
pub(crate) async fn one<T>(
    db: &Object,
    text: &'static str,
    params: &[&(dyn ToSql + Sync)],
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Option<T>> {
    let statement = prepare(db, text).await?;
    let row = db.query_opt(&statement, params).await?;
    Ok(row.as_ref().map(read).transpose()?)
}

/// Carries out a statement that stays prepared, and returns how many rows it changed.
pub(crate) async fn execute(
    db: &Object,
    text: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<u64> {
    let statement = prepare(db, text).await?;
    Ok(db.execute(&statement, params).await?)
}

pub(super) fn version(text: &str) -> Result<Version, Error> {
    word(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_sent_with_all_their_digits() {
        let text = r#"{"1e5":[1e22,-1.5E+20,2e-3,12],"a":"\"1e9","b":1e16,"c":0.5,"d":-7}"#;
        let due = r#"{"1e5":[10000000000000000000000.0,-150000000000000000000.0,0.002,12],"a":"\"1e9","b":10000000000000000.0,"c":0.5,"d":-7}"#;
        assert_eq!(Json::new(text).0, due);
        assert!(matches!(Json::new(r#"{"a":"1e9"}"#).0, Cow::Borrowed(_)));
    }

    #[test]
    fn json_with_nul_comes_back_as_it_was() {
        let text = r#"{"a\u0000":"x\u0000y","b":"\\u0000","c":"\\\u0000","d":"\u001a0\u001a"}"#;
        let stored = Json::new(text).0;
        assert!(
            !stored.replace(r"\\u0000", "").contains("u0000"),
            "{stored}"
        );
        assert_eq!(unescape(&stored), text);
    }

    #[test]
    fn names_with_nul_come_back_as_they_were() {
        for text in ["", "a", "\0", "a\0b\u{1a}", "\u{1a}0", "\u{1a}\0\u{1a}1"] {
            assert!(!name(text).contains('\0'));
            assert_eq!(&*unname(&name(text)), text);
        }
    }
}
