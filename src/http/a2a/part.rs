//! Parts of messages: read in either generation of the protocol, and turned into the content of the messages of graphs
//! and back.

use std::sync::Arc;

use super::codes::CONTENT_TYPE;
use crate::{
    http::json_rpc::Failure,
    value,
    value::{Map, Value},
};

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(Arc<str>),
    Data(Value),
    File(File),
}

/// A file, or where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub source: Source,
    pub media_type: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
}

/// Where the content of a file is.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Url(Arc<str>),
    /// Here, in base64.
    Bytes(Arc<str>),
}

fn text(map: &Map, names: &[&str]) -> Option<Arc<str>> {
    let mut found = names.iter().filter_map(|name| map.get(name));
    found.find_map(|value| match value {
        Value::Str(text) => Some(text.clone()),
        _ => None,
    })
}

impl Part {
    /// Reads a part. Its kind is that of 0.3, or follows from the field that is there.
    pub fn parse(value: &Value) -> Result<Self, Failure> {
        let Some(map) = value.as_map() else {
            return Err(Failure::params("Each part must be an object"));
        };
        let named = text(map, &["kind", "type"]);
        let known = |kind: &str| match &named {
            Some(named) => **named == *kind,
            None => map.contains_key(kind),
        };
        if known("text") {
            let content = text(map, &["text"]);
            return content
                .map(Self::Text)
                .ok_or_else(|| Failure::params("A text part needs its `text`, a string"));
        }
        if known("data") {
            return match map.get("data") {
                None | Some(Value::Null) => Err(Failure::params("A data part needs its `data`")),
                Some(data) => Ok(Self::Data(data.clone())),
            };
        }
        let is_new = named.is_none() && (map.contains_key("url") || map.contains_key("raw"));
        if known("file") || is_new {
            let inner = map.get("file").and_then(Value::as_map).unwrap_or(map);
            return file(inner);
        }
        Err(Failure::new(
            CONTENT_TYPE,
            "A part must be of the kind text, data or file",
        ))
    }

    /// The block of content of a graph's message.
    pub fn to_block(&self) -> Value {
        match self {
            Self::Text(text) => value!({"type": "text", "text": (Value::Str(text.clone()))}),
            Self::Data(data) => {
                value!({"type": "text", "text": (data.to_json())})
            }
            Self::File(file) => file.to_block(),
        }
    }

    /// The part that shows a block of content.
    fn of_block(block: &Value) -> Self {
        let Some(map) = block.as_map() else {
            return match block {
                Value::Str(text) => Self::Text(text.clone()),
                other => Self::Data(other.clone()),
            };
        };
        let content = text(map, &["text"]);
        let source = text(map, &["url"]).map(Source::Url);
        let source = source.or_else(|| text(map, &["base64"]).map(Source::Bytes));
        match (map.get("type").and_then(Value::as_str), content, source) {
            (Some("text"), Some(content), _) => Self::Text(content),
            (Some("image" | "audio" | "video" | "file"), _, Some(source)) => {
                let extras = map.get("extras").and_then(Value::as_map);
                Self::File(File {
                    source,
                    media_type: text(map, &["mime_type"]),
                    name: extras.and_then(|extras| text(extras, &["filename"])),
                })
            }
            _ => Self::Data(block.clone()),
        }
    }
}

fn file(map: &Map) -> Result<Part, Failure> {
    let source = text(map, &["uri", "url"]).map(Source::Url);
    let source = source.or_else(|| text(map, &["bytes", "raw"]).map(Source::Bytes));
    let source = source.ok_or_else(|| {
        Failure::params("A file part needs the address of its file, or the bytes in base64")
    })?;
    Ok(Part::File(File {
        source,
        media_type: text(map, &["mimeType", "mediaType"]),
        name: text(map, &["name", "filename"]),
    }))
}

impl File {
    fn to_block(&self) -> Value {
        let family = self
            .media_type
            .as_deref()
            .and_then(|kind| kind.split('/').next());
        let is_media = |family: &&str| matches!(*family, "image" | "audio" | "video");
        let kind = family.filter(is_media).unwrap_or("file");
        let mut map = Map::from([("type", Value::str(kind))]);
        match &self.source {
            Source::Url(url) => map.insert("url", Value::Str(url.clone())),
            Source::Bytes(text) => map.insert("base64", Value::Str(text.clone())),
        };
        if let Some(kind) = &self.media_type {
            map.insert("mime_type", Value::Str(kind.clone()));
        }
        if let Some(name) = &self.name {
            map.insert("extras", value!({"filename": (Value::Str(name.clone()))}));
        }
        Value::map(map)
    }
}

/// The content of a graph's message: a text if that is all, else blocks.
pub fn content(parts: &[Part]) -> Value {
    match parts {
        [Part::Text(text)] => Value::Str(text.clone()),
        parts => Value::list(parts.iter().map(Part::to_block).collect()),
    }
}

/// The parts that show the content of a graph's message; none of one that is empty.
pub fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::Str(text) if text.is_empty() => vec![],
        Value::List(blocks) => blocks.iter().map(Part::of_block).collect(),
        Value::Null => vec![],
        other => vec![Part::of_block(other)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_both_generations_become_the_same_content_and_come_back() {
        let old = value!([
            {"kind": "text", "text": "see"},
            {"kind": "file", "file": {"uri": "https://x/y.png", "mimeType": "image/png"}},
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "a.txt"}}
        ]);
        let new = value!([
            {"text": "see"},
            {"url": "https://x/y.png", "mediaType": "image/png"},
            {"raw": "aGk=", "mediaType": "text/plain", "filename": "a.txt"}
        ]);
        let read = |list: &Value| -> Vec<Part> {
            let parts = list.as_list().unwrap().iter().map(Part::parse);
            parts.collect::<Result<_, _>>().unwrap()
        };
        let blocks = value!([
            {"type": "text", "text": "see"},
            {"type": "image", "url": "https://x/y.png", "mime_type": "image/png"},
            {"type": "file", "base64": "aGk=", "mime_type": "text/plain", "extras": {"filename": "a.txt"}}
        ]);
        assert_eq!(content(&read(&old)), blocks);
        assert_eq!(content(&read(&new)), blocks);
        assert_eq!(parts(&blocks), read(&old));
        assert_eq!(content(&[Part::Text("hi".into())]), Value::str("hi"));
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for wrong in [
            value!("x"),
            value!({"kind": "text"}),
            value!({"kind": "text", "text": 1}),
            value!({"kind": "data"}),
            value!({"kind": "file", "file": {}}),
            value!({"kind": "bogus"}),
            value!({}),
        ] {
            assert!(Part::parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
