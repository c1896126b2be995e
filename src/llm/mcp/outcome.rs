//! What a call at an MCP server gave, as the result of a tool.

use anyhow::bail;
use base64::{Engine, engine::general_purpose::STANDARD};
use rmcp::model::{CallToolResponse, ContentBlock, ResourceContents};

use crate::{value, value::Value};

/// The texts of the result, a line each; structured content where there is no text. Where there are images, texts and
/// images are parts of content in their order. What is neither is named and left out.
///
/// # Errors
/// The server says that the call failed, with its texts, or asks for what only a person could say.
pub(super) fn value(response: CallToolResponse) -> anyhow::Result<Value> {
    let result = match response {
        CallToolResponse::Complete(result) => result,
        CallToolResponse::InputRequired(_) => {
            bail!("the tool asks for input, which it cannot get here")
        }
        _ => bail!("the tool answers with a task of its own, which cannot be followed here"),
    };
    let failed = result.is_error == Some(true);
    if !failed && result.content.iter().any(|block| image_of(block).is_some()) {
        let parts = result.content.into_iter().map(part).collect();
        return Ok(Value::list(parts));
    }
    let texts: Vec<String> = result.content.into_iter().map(text).collect();
    if failed && texts.is_empty() {
        bail!("the tool failed and does not say why");
    }
    if failed {
        bail!("{}", texts.join("\n"));
    }
    match result.structured_content {
        Some(content) if texts.is_empty() => Ok(Value::from_serde_json(content)),
        _ => Ok(Value::str(texts.join("\n"))),
    }
}

/// An image that models take: of another kind, or with bytes that cannot be read, it would fail every later call.
fn image_of(block: &ContentBlock) -> Option<Value> {
    const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    let ContentBlock::Image(image) = block else {
        return None;
    };
    let (kind, bytes) = (&*image.mime_type, &*image.data);
    let is_image = KINDS.contains(&kind) && STANDARD.decode(bytes).is_ok();
    is_image.then(|| value!({"type": "image", "base64": bytes, "mime_type": kind}))
}

/// Texts end with their line, for models that read texts alone.
fn part(block: ContentBlock) -> Value {
    image_of(&block).unwrap_or_else(|| value!({"type": "text", "text": (text(block) + "\n")}))
}

fn text(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", Some(&image.mime_type), image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", Some(&audio.mime_type), audio.data.len()),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => left_out(&uri, mime_type.as_deref(), blob.len()),
            _ => "[a resource of an unknown kind left out]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => link.uri,
        _ => "[content of an unknown kind left out]".to_owned(),
    }
}

/// `[image image/png, 12 bytes left out]`; the data is Base64, four characters for three bytes.
fn left_out(what: &str, mime_type: Option<&str>, characters: usize) -> String {
    let kind = mime_type.unwrap_or("of an unknown type");
    format!("[{what} {kind}, {} bytes left out]", characters / 4 * 3)
}
