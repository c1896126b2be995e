//! Parses JSON text into values and writes values as JSON.

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeSeed;

use super::de::Tree;
use super::{JsonError, Map, Opaque, Value};

impl Value {
    /// About how many bytes it has as JSON.
    pub(crate) fn rough_size(&self) -> usize {
        const SCALAR: usize = 8;
        match self {
            Self::Str(text) => text.len() + SCALAR,
            Self::Bytes(bytes) => bytes.len() + SCALAR,
            Self::Opaque(opaque) => opaque.bytes.len() + SCALAR,
            Self::List(items) => items.iter().map(Self::rough_size).sum::<usize>() + SCALAR,
            Self::Map(map) => {
                map.iter()
                    .map(|(key, value)| key.len() + SCALAR + value.rough_size())
                    .sum::<usize>()
                    + SCALAR
            }
            _ => SCALAR,
        }
    }
}

/// Parses a JSON text.
///
/// The last of duplicate keys wins; `\u` escapes of lone surrogates become U+FFFD.
///
/// # Errors
/// [`JsonError`] with a position: no JSON, nested 128 levels or deeper, or an integer beyond
/// 64 bits.
fn parse(text: &[u8]) -> Result<Value, JsonError> {
    match parse_once(text) {
        Ok((value, false)) => Ok(value),
        // A huge float: fine as `1e300`, but an integer must not silently become one.
        Ok((value, true)) => match first_large_integer(text) {
            None => Ok(value),
            Some((digits, at)) => {
                let (line, column) = position(text, at);
                Err(JsonError::IntegerTooLarge {
                    digits,
                    line,
                    column,
                })
            }
        },
        Err(error) => match replace_lone_surrogates(text) {
            // Same length, so positions in errors stay right.
            Some(fixed) => parse(&fixed),
            None => Err(syntax(&error)),
        },
    }
}

fn parse_once(text: &[u8]) -> Result<(Value, bool), serde_json::Error> {
    let large = Cell::new(false);
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = Tree::watching(&large).deserialize(&mut parser)?;
    parser.end()?;
    Ok((value, large.get()))
}

fn syntax(error: &serde_json::Error) -> JsonError {
    let full = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let message = full.strip_suffix(&at).unwrap_or(&full).to_owned();
    JsonError::Syntax {
        message,
        line: error.line(),
        column: error.column(),
    }
}

fn position(text: &[u8], at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    (line, column)
}

/// Finds the first whole number of a valid JSON text that fits neither `i64` nor `u64`.
fn first_large_integer(text: &[u8]) -> Option<(String, usize)> {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'-' | b'0'..=b'9' => {
                let rest = text.get(at..)?;
                let len = rest
                    .iter()
                    .position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
                    .unwrap_or(rest.len());
                let number = std::str::from_utf8(rest.get(..len)?).ok()?;
                let whole = !number.contains(['.', 'e', 'E']);
                if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    let mut digits = number.to_owned();
                    if digits.len() > 40 {
                        digits.truncate(40);
                        digits.push_str("...");
                    }
                    return Some((digits, at));
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    None
}

/// The index after the string that starts at `start`.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// A copy of the text in which lone surrogate escapes are `\uFFFD`; `None` if there is none.
fn replace_lone_surrogates(text: &[u8]) -> Option<Vec<u8>> {
    let mut fixed: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if *byte != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = escape_unit(text, at) else {
            at += 2;
            continue;
        };
        let next = escape_unit(text, at + 6);
        match unit {
            0xD800..=0xDBFF if matches!(next, Some(0xDC00..=0xDFFF)) => at += 12,
            0xD800..=0xDFFF => {
                let copy = fixed.get_or_insert_with(|| text.to_vec());
                if let Some(hex) = copy.get_mut(at + 2..at + 6) {
                    hex.copy_from_slice(b"FFFD");
                }
                at += 6;
            }
            _ => at += 6,
        }
    }
    fixed
}

/// The code unit of a `\uXXXX` escape at this position.
fn escape_unit(text: &[u8], at: usize) -> Option<u16> {
    let escape = text.get(at..at + 6)?;
    let hex = escape.strip_prefix(b"\\u")?;
    if !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The JSON form of an opaque value, for people only: it is read back as a plain map.
pub(super) fn opaque_map(opaque: &Opaque) -> Map {
    Map::from([
        ("__opaque__", Value::Str(opaque.tag.clone())),
        ("bytes", Value::Str(base64(&opaque.bytes).into())),
    ])
}

impl Value {
    /// Parses a JSON text (UTF-8).
    ///
    /// The last of duplicate keys wins, a lone surrogate escape becomes U+FFFD, an integral
    /// float (`1.0`) stays a float. Typed requests are read with this and then
    /// [`from_value`](super::from_value): deserializing straight from `serde_json` would turn an
    /// integer beyond 64 bits into a float.
    ///
    /// # Errors
    /// [`JsonError`] with a position: no JSON (NaN is none), nested 128 levels or deeper, or an
    /// integer that does not fit 64 bits.
    pub fn from_json_slice(text: &[u8]) -> Result<Value, JsonError> {
        parse(text)
    }

    /// Compact JSON: floats in their shortest form that reads back the same, integral ones with
    /// `.0`, NaN and infinities as null, bytes as base64 text.
    pub fn to_json(&self) -> String {
        let mut out = Vec::with_capacity(128);
        self.write_json(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Appends compact JSON to `out`, as [`Value::to_json`].
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        // Writing to memory cannot fail and all map keys are text, so there is no error case.
        let result = serde_json::to_writer(out, self);
        debug_assert!(result.is_ok(), "values are always JSON: {result:?}");
    }
}
