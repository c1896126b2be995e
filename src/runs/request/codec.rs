//! A run's request as its row stores it: names that every request has, and ids that the row has
//! in columns, become one character each. Fields with the value that most requests have are left out.
//! Decoding restores the request as it was.

use std::sync::{Arc, LazyLock};

use crate::{
    checkpoint::codec::{self, Format},
    id::{AssistantId, RunId, ThreadId},
    value::{Map, Value},
};

mod config;

/// Names that are stored as one character: their index plus one. New names go to the end.
const NAMES: [&str; 27] = [
    "input",
    "command",
    "config",
    "context",
    "stream_mode",
    "interrupt_before",
    "interrupt_after",
    "webhook",
    "feedback_keys",
    "temporary",
    "subgraphs",
    "resumable",
    "checkpoint_during",
    "durability",
    "configurable",
    "metadata",
    "langgraph_auth_user",
    "langgraph_auth_user_id",
    "langgraph_auth_permissions",
    "langgraph_request_id",
    "run_id",
    "thread_id",
    "graph_id",
    "assistant_id",
    "user_id",
    "created_by",
    "traceparent",
];

/// Fields whose values are the client's: they are stored unchanged.
const OWN: [&str; 3] = ["input", "command", "context"];

/// The field of the config, of which the server makes a part.
const CONFIG: &str = "config";

/// The fields that every request has, in their order, each with the value that is not stored: never change one.
static FIELDS: LazyLock<[(&str, Option<Value>); 14]> = LazyLock::new(|| {
    [
        ("input", None),
        ("command", Some(Value::Null)),
        ("config", None),
        ("context", Some(Value::map(Map::new()))),
        ("stream_mode", None),
        ("interrupt_before", Some(Value::Null)),
        ("interrupt_after", Some(Value::Null)),
        ("webhook", Some(Value::Null)),
        ("feedback_keys", Some(Value::Null)),
        ("temporary", Some(false.into())),
        ("subgraphs", Some(false.into())),
        ("resumable", Some(false.into())),
        ("checkpoint_during", Some(true.into())),
        ("durability", Some("async".into())),
    ]
});

/// Bytes that a request has beside its metadata at the least where that is stored in the row too.
const LARGE: usize = 4096;

/// Begins texts that begin with a character of this kind themselves.
const ESCAPE: char = '\u{1f}';
/// A field that marks a request in this form: true where fields are left out, null in requests of
/// earlier versions, which have all of them.
const MARK: &str = "\u{1e}";

/// The ids of a run that its row has in columns.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its assistant.
    pub assistant: AssistantId,
}

impl Columns {
    fn texts(self) -> [Arc<str>; 3] {
        [
            self.run.to_string().into(),
            self.thread.to_string().into(),
            self.assistant.to_string().into(),
        ]
    }
}

/// A request as its row stores it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its tag, which says what it weighs beside its bytes.
    pub tag: Arc<str>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    fn of(value: &Value) -> Self {
        let (tag, bytes) = codec::encode_weighed(value, Format::Bincode);
        Self { tag, bytes }
    }
}

/// Encodes a request: what is to be read as JSON is whole.
pub fn encode(request: &Value, columns: Columns, format: Format) -> Encoded {
    if format == Format::Json
        && let Some((tag, bytes)) = codec::encode_json(request)
    {
        return Encoded { tag, bytes };
    }
    let Some(map) = request.as_map() else {
        return Encoded::of(request);
    };
    let texts = columns.texts();
    let mut short = Map::with_capacity(map.len() + 1);
    let is_usual = has_usual_fields(map);
    for (at, (name, value)) in map.iter().enumerate() {
        let usual = FIELDS.get(at).and_then(|(_, usual)| usual.as_ref());
        if is_usual && usual == Some(value) {
            continue;
        }
        let value = match &**name {
            own if OWN.contains(&own) => value.clone(),
            CONFIG => config::pack(shorten(value, &texts)),
            _ => shorten(value, &texts),
        };
        short.insert(short_name(name), value);
    }
    let mark = if is_usual {
        Value::Bool(true)
    } else {
        Value::Null
    };
    short.insert(MARK, mark);
    Encoded::of(&Value::map(short))
}

/// Decodes a request.
///
/// # Errors
/// The bytes are not those of a request.
pub fn decode(tag: &str, bytes: &[u8], columns: Columns) -> Result<Value, codec::Error> {
    let mut value = codec::decode(tag, bytes)?;
    if codec::is_json(tag) {
        return Ok(value);
    }
    let Some(mark) = value.get(MARK).cloned() else {
        return Ok(value);
    };
    let Some(map) = value.make_map_mut() else {
        return Ok(value);
    };
    map.remove(MARK);
    let texts = columns.texts();
    let mut whole = Map::with_capacity(map.len().max(FIELDS.len()));
    if mark == Value::Bool(true) {
        // Each field takes its place, and those that are stored their value below.
        for (name, usual) in FIELDS.iter() {
            whole.insert(*name, usual.clone().unwrap_or(Value::Null));
        }
    }
    for (name, value) in map.iter() {
        let name = whole_name(name);
        let value = match &*name {
            own if OWN.contains(&own) => value.clone(),
            CONFIG => restore(&config::unpack(value), &texts),
            _ => restore(value, &texts),
        };
        whole.insert(name, value);
    }
    Ok(Value::map(whole))
}

/// The request of a run as its row stores it, if it stores one; null if it cannot be decoded. A run without a request
/// fails when it is taken up, and keeps no other from being read.
pub fn request_of(stored: Option<&[u8]>, tag: &str, columns: Columns) -> Value {
    let Some(bytes) = stored else {
        return Value::Null;
    };
    decode(tag, bytes, columns).unwrap_or_else(|error| {
        tracing::error!(run = %columns.run, %error, "the stored request of a run cannot be read");
        Value::Null
    })
}

/// Whether a request begins with all usual fields, in their order.
fn has_usual_fields(map: &Map) -> bool {
    let mut names = map.keys();
    FIELDS
        .iter()
        .all(|(field, _)| names.next().is_some_and(|name| &**name == *field))
}

/// A run's metadata as its row stores it; `None` when the request has it already, so that the row
/// stores JSON's `null`.
pub fn own_metadata<'a>(metadata: &'a Map, request: &Value) -> Option<&'a Map> {
    (requested(request) != Some(metadata)).then_some(metadata)
}

/// What a row stores as the metadata of a run whose request takes so many bytes: null, a map with what the row adds
/// to the metadata of the request, or a list of the latter and of what is added. A list is stored beside a large
/// request, so that the metadata is read without it.
pub fn stored_metadata(added: Option<&Map>, request: &Value, bytes: usize) -> Value {
    let added = added.map(|map| Value::map(map.clone()));
    match requested(request).map(|map| Value::map(map.clone())) {
        Some(known) if bytes >= LARGE + 2 * known.rough_size() => {
            Value::list(std::iter::once(known).chain(added).collect())
        }
        _ => added.unwrap_or_default(),
    }
}

/// A run's metadata: that of its request, and over it what its row adds, such as that of the
/// thread. The request then has all of it; where that was not read, it is what the row has.
pub fn metadata(stored: &Value, request: &mut Value) -> Map {
    let (known, added) = match stored {
        Value::Map(_) => (None, stored.as_map()),
        Value::List(parts) => {
            let mut parts = parts.iter().map(Value::as_map);
            (parts.next().flatten(), parts.next().flatten())
        }
        _ => (None, None),
    };
    let metadata = requested(request).or(known);
    let mut metadata = metadata.cloned().unwrap_or_default();
    let Some(added) = added else { return metadata };
    metadata.extend(added.clone());
    if let Some(requested) = request
        .make_map_mut()
        .and_then(|map| map.get_mut("config")?.make_map_mut()?.get_mut("metadata"))
    {
        *requested = Value::map(metadata.clone());
    }
    metadata
}

fn requested(request: &Value) -> Option<&Map> {
    request.get("config")?.get("metadata")?.as_map()
}

fn shorten(value: &Value, texts: &[Arc<str>; 3]) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(|item| shorten(item, texts)).collect()),
        Value::Map(map) => Value::map(
            map.iter()
                .map(|(name, value)| (short_name(name), shorten(value, texts)))
                .collect(),
        ),
        Value::Str(text) => Value::Str(match code_of(texts.iter().map(|text| &**text), text) {
            Some(short) => short,
            None => escaped(text),
        }),
        other => other.clone(),
    }
}

fn restore(value: &Value, texts: &[Arc<str>; 3]) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(|item| restore(item, texts)).collect()),
        Value::Map(map) => Value::map(
            map.iter()
                .map(|(name, value)| (whole_name(name), restore(value, texts)))
                .collect(),
        ),
        Value::Str(text) => Value::Str(match index_of(text).and_then(|index| texts.get(index)) {
            Some(whole) => whole.clone(),
            None => unescaped(text),
        }),
        other => other.clone(),
    }
}

fn short_name(name: &Arc<str>) -> Arc<str> {
    code_of(NAMES.into_iter(), name).unwrap_or_else(|| escaped(name))
}

fn whole_name(name: &Arc<str>) -> Arc<str> {
    match index_of(name).and_then(|index| NAMES.get(index)) {
        Some(whole) => Arc::from(*whole),
        None => unescaped(name),
    }
}

/// The character of a text among those that have one.
fn code_of<'a>(mut known: impl Iterator<Item = &'a str>, text: &str) -> Option<Arc<str>> {
    let index = known.position(|known| known == text)?;
    let char = char::from_u32(u32::try_from(index).ok()? + 1)?;
    Some(Arc::from(char.encode_utf8(&mut [0; 4]) as &str))
}

/// The index that a character encodes.
fn index_of(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [byte @ 1..MARK_BYTE] => Some(usize::from(*byte) - 1),
        _ => None,
    }
}

const MARK_BYTE: u8 = MARK.as_bytes()[0];

fn escaped(text: &Arc<str>) -> Arc<str> {
    match text.chars().next() {
        Some('\u{1}'..=ESCAPE) => format!("{ESCAPE}{text}").into(),
        _ => text.clone(),
    }
}

fn unescaped(text: &Arc<str>) -> Arc<str> {
    text.strip_prefix(ESCAPE)
        .map_or_else(|| text.clone(), Arc::from)
}

#[cfg(test)]
mod tests;
