//! Reads the content of a message as parts that every provider's form is made of: texts, images, files, reasoning.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::value::Value;

/// A part of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    /// What a model thought before its reply, with the proof that it was this model.
    Reasoning {
        text: String,
        signature: Option<String>,
    },
    /// An image, a recording, a film or a document.
    Media(Media),
    /// What only some providers know.
    Other(Value),
}

/// What a part shows that is no text.
#[derive(Debug, PartialEq)]
pub(super) struct Media {
    pub kind: Kind,
    pub source: Source,
    /// Such as `image/png`.
    pub mime: Option<String>,
    /// The name of the file.
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    Audio,
    Video,
    File,
}

/// Where the bytes are.
#[derive(Debug, PartialEq)]
pub(super) enum Source {
    Url(String),
    Base64(String),
    /// At the provider, where they were uploaded.
    Id(String),
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "an image",
            Self::Audio => "audio",
            Self::Video => "a video",
            Self::File => "a file",
        }
    }
}

/// Whether the result of a tool is content: a list of texts, images and files with their bytes or where these are. By
/// LangGraph's rule the types alone say so; data has such types too, and would reach no model.
pub(super) fn is_content(value: &Value) -> bool {
    let is_block = |item: &Value| {
        let kind = item.get("type").and_then(Value::as_str);
        let is_of_tools = matches!(
            kind,
            Some("text" | "image" | "image_url" | "document" | "file")
        );
        is_of_tools
            && match part(item) {
                Ok(Part::Text(_)) => true,
                Ok(Part::Media(media)) => !matches!(media.source, Source::Id(_)),
                _ => false,
            }
    };
    let items = value.as_list().unwrap_or_default();
    !items.is_empty() && items.iter().all(is_block)
}

/// The parts of a content, which is a text or a list. Parts are read in LangChain's standard form and in the forms of
/// OpenAI and Anthropic, which clients send too.
///
/// # Errors
/// A part has no source, or its bytes are not Base64.
pub(super) fn parts(content: &Value) -> Result<Vec<Part>, String> {
    match content {
        Value::Str(text) => Ok(vec![Part::Text(text.to_string())]),
        Value::List(items) => items.iter().map(part).collect(),
        _ => Ok(vec![]),
    }
}

fn part(item: &Value) -> Result<Part, String> {
    if let Some(text) = item.as_str() {
        return Ok(Part::Text(text.to_owned()));
    }
    let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = text("type").unwrap_or_default();
    match &*kind {
        "text" | "text-plain" if item.get("text").is_some() => {
            Ok(Part::Text(text("text").unwrap_or_default()))
        }
        "reasoning" | "thinking" => {
            let extras = item.get("extras");
            let proof = item
                .get("signature")
                .or(extras.and_then(|extras| extras.get("signature")));
            Ok(Part::Reasoning {
                text: text("reasoning")
                    .or_else(|| text("thinking"))
                    .unwrap_or_default(),
                signature: proof.and_then(Value::as_str).map(str::to_owned),
            })
        }
        "image" | "image_url" => media(Kind::Image, item),
        "audio" | "input_audio" => media(Kind::Audio, item),
        "video" => media(Kind::Video, item),
        "file" | "document" | "text-plain" => media(Kind::File, item),
        _ => Ok(Part::Other(item.clone())),
    }
    .map_err(|reason| format!("its part of type `{kind}` {reason}"))
}

fn media(kind: Kind, item: &Value) -> Result<Part, String> {
    // Providers put into a map of its own what LangChain has in the part itself.
    let nested = ["source", "image_url", "input_audio", "file"].map(|key| item.get(key));
    let nested = nested
        .into_iter()
        .flatten()
        .find(|value| value.as_map().is_some());
    let inner = nested.unwrap_or(item);
    let text = |keys: &[&str]| {
        let found = keys
            .iter()
            .find_map(|key| inner.get(key).or_else(|| item.get(key)));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    let mut mime = text(&["mime_type", "media_type"]);
    if let Some(format) = text(&["format"]) {
        mime = mime.or(Some(format!("audio/{format}")));
    }
    let name = text(&["filename", "name"]).or_else(|| {
        let name = item
            .get("extras")
            .or(item.get("metadata"))?
            .get("filename")?;
        name.as_str().map(str::to_owned)
    });
    let bytes = ["base64", "data", "file_data"]
        .iter()
        .find_map(|key| inner.get(key));
    let source = if let Some(Value::Bytes(bytes)) = bytes {
        Source::Base64(STANDARD.encode(bytes))
    } else if let Some(data) = bytes.and_then(Value::as_str) {
        inline(data, &mut mime)?
    } else if let Some(url) = text(&["url", "image_url"]) {
        inline_url(url, &mut mime)?
    } else if let Some(id) = text(&["file_id", "id"]) {
        Source::Id(id)
    } else {
        return Err("says neither `url` nor `base64` nor `file_id`".to_owned());
    };
    Ok(Part::Media(Media {
        kind,
        source,
        mime,
        name,
    }))
}

/// Bytes in a `data:` address, or an address that somebody else reads.
fn inline_url(url: String, mime: &mut Option<String>) -> Result<Source, String> {
    if url.starts_with("data:") {
        inline(&url, mime)
    } else {
        Ok(Source::Url(url))
    }
}

/// Bytes as Base64, alone or in a `data:` address.
fn inline(data: &str, mime: &mut Option<String>) -> Result<Source, String> {
    let data = match data.strip_prefix("data:") {
        None => data,
        Some(rest) => {
            let (kind, data) = rest
                .split_once(";base64,")
                .ok_or("has a `data:` address that is not Base64")?;
            if mime.is_none() && !kind.is_empty() {
                // Parameters such as the charset are not part of the type.
                *mime = kind.split(';').next().map(str::to_owned);
            }
            data
        }
    };
    STANDARD
        .decode(data)
        .map_err(|error| format!("has bytes that are not Base64: {error}"))?;
    Ok(Source::Base64(data.to_owned()))
}

impl Media {
    /// The text of a file of text, for providers that take texts only.
    ///
    /// # Errors
    /// The bytes are not UTF-8.
    pub fn as_text(&self) -> Result<Option<String>, String> {
        let is_text = self
            .mime
            .as_deref()
            .is_some_and(|mime| mime.starts_with("text/"));
        let Source::Base64(data) = &self.source else {
            return Ok(None);
        };
        if !is_text || self.kind != Kind::File {
            return Ok(None);
        }
        let bytes = STANDARD.decode(data).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|error| format!("a file of text in it is not UTF-8: {error}"))
    }
}

/// The text of a content for a provider that takes nothing else there, such as in the result of a tool. Other parts
/// are named, so that the model knows of them.
pub(super) fn text_only(content: &Value) -> Result<String, String> {
    let mut out = String::new();
    for part in parts(content)? {
        match part {
            Part::Text(text) => out.push_str(&text),
            Part::Reasoning { .. } => {}
            Part::Media(media) => match media.as_text()? {
                Some(text) => out.push_str(&text),
                None => {
                    let mime = media.mime.as_deref().unwrap_or("of an unknown type");
                    out.push_str(&format!("[{} left out: {mime}]", media.kind.name()));
                }
            },
            Part::Other(part) => out.push_str(&part.to_json()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn one(part: Value) -> Result<Part, String> {
        let mut all = parts(&Value::list(vec![part]))?;
        Ok(all.remove(0))
    }

    fn image(source: Source, mime: Option<&str>) -> Part {
        Part::Media(Media {
            kind: Kind::Image,
            source,
            mime: mime.map(str::to_owned),
            name: None,
        })
    }

    #[test]
    fn images_are_read_in_every_form_that_clients_have() {
        let bytes = || Source::Base64("aGk=".to_owned());
        for part in [
            value!({"type": "image", "base64": "aGk=", "mime_type": "image/png"}),
            value!({"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/png"}),
            value!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}),
            value!({"type": "image_url", "image_url": "data:image/png;base64,aGk="}),
            value!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}),
        ] {
            assert_eq!(
                one(part.clone()),
                Ok(image(bytes(), Some("image/png"))),
                "{part:?}"
            );
        }
        for part in [
            value!({"type": "image", "url": "https://x/y.png"}),
            value!({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}),
            value!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
        ] {
            let url = Source::Url("https://x/y.png".to_owned());
            assert_eq!(one(part.clone()), Ok(image(url, None)), "{part:?}");
        }
    }

    #[test]
    fn files_have_names_and_recordings_types() {
        let file = value!({"type": "file", "file": {
            "file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}});
        let expected = Part::Media(Media {
            kind: Kind::File,
            source: Source::Base64("aGk=".to_owned()),
            mime: Some("application/pdf".to_owned()),
            name: Some("a.pdf".to_owned()),
        });
        assert_eq!(one(file), Ok(expected));
        let audio =
            value!({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}});
        let Ok(Part::Media(audio)) = one(audio) else {
            panic!("a recording")
        };
        assert_eq!(audio.mime.as_deref(), Some("audio/wav"));
        assert_eq!(
            one(value!({"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}})),
            Ok(Part::Reasoning {
                text: "hm".to_owned(),
                signature: Some("s".to_owned())
            })
        );
    }

    #[test]
    fn parts_without_bytes_and_with_wrong_ones_are_errors() {
        for part in [
            value!({"type": "image"}),
            value!({"type": "image", "base64": "%%"}),
            value!({"type": "image", "url": "data:image/png,hi"}),
            value!({"type": "file", "file": {}}),
        ] {
            let error = one(part.clone()).expect_err("it shows nothing");
            assert!(error.starts_with("its part of type"), "{error}");
        }
        let latin = value!([{"type": "file", "base64": "/w==", "mime_type": "text/plain"}]);
        let error = text_only(&latin).expect_err("not UTF-8");
        assert!(error.contains("not UTF-8"), "{error}");
    }

    #[test]
    fn a_result_of_a_tool_names_what_is_no_text() {
        let content =
            value!(["Here: ", {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]);
        let text = text_only(&content).expect("a text");
        assert_eq!(text, "Here: [an image left out: image/png]");
        assert_eq!(text_only(&value!("a\u{0}b")).expect("a text"), "a\u{0}b");
    }
}
