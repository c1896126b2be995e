//! Images and files in the forms of the providers, and what each of them does not take.

use genai::chat::{Binary, ContentPart};
use serde_json::{Value as Json, json};

use super::provider::Provider;
use crate::{
    llm::parts::{Kind, Media, Part, Source, parts},
    value::Value,
};

/// A part of the message of a person.
///
/// # Errors
/// The provider does not take it.
pub(super) fn form(provider: Provider, media: Media) -> Result<ContentPart, String> {
    let text = media.as_text()?;
    // Gemini takes files of text as they are.
    if let Some(text) = text.filter(|_| provider != Provider::Gemini) {
        return Ok(ContentPart::from_text(text));
    }
    match provider {
        Provider::Anthropic => Ok(ContentPart::from_custom(anthropic(&media)?, None)),
        Provider::Gemini => gemini(media),
        Provider::Ollama => match (media.kind, media.source) {
            (Kind::Image, Source::Base64(data)) => {
                let mime = media.mime.unwrap_or_else(|| "image/png".to_owned());
                Ok(ContentPart::Binary(Binary::from_base64(mime, data, None)))
            }
            (Kind::Image, _) => Err("Ollama takes images as `base64` only".to_owned()),
            (kind, _) => Err(format!("Ollama does not take {}", kind.name())),
        },
    }
}

/// A block of Anthropic's.
fn anthropic(media: &Media) -> Result<Json, String> {
    let kind = match media.kind {
        Kind::Image => "image",
        Kind::File => "document",
        Kind::Audio | Kind::Video => {
            return Err(format!("Anthropic does not take {}", media.kind.name()));
        }
    };
    let source = match &media.source {
        Source::Url(url) => json!({"type": "url", "url": url}),
        Source::Base64(data) => {
            let mime = media.mime.as_deref().ok_or("its part has no `mime_type`")?;
            json!({"type": "base64", "media_type": mime, "data": data})
        }
        Source::Id(id) => json!({"type": "file", "file_id": id}),
    };
    Ok(json!({"type": kind, "source": source}))
}

fn gemini(media: Media) -> Result<ContentPart, String> {
    let mime = media.mime.ok_or("its part has no `mime_type`")?;
    match media.source {
        Source::Url(url) => Ok(ContentPart::Binary(Binary::from_url(mime, url, None))),
        Source::Base64(data) => Ok(ContentPart::Binary(Binary::from_base64(mime, data, None))),
        Source::Id(_) => Err("Gemini takes uploaded files by their `url`".to_owned()),
    }
}

/// The result of a tool as Anthropic takes it: a text, or blocks where there are images or documents.
pub(super) fn result(content: &Value) -> Result<Json, String> {
    if let Some(text) = content.as_str() {
        return Ok(text.into());
    }
    let mut blocks = vec![];
    for part in parts(content)? {
        match part {
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => blocks.push(json!({"type": "text", "text": text})),
            Part::Reasoning { .. } => {}
            Part::Media(media) => blocks.push(match media.as_text()? {
                Some(text) => json!({"type": "text", "text": text}),
                None => anthropic(&media)?,
            }),
            Part::Other(part) => blocks.push(json!({"type": "text", "text": part.to_json()})),
        }
    }
    Ok(Json::Array(blocks))
}
