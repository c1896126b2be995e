//! The OpenAPI document as a page for people: plain HTML without scripts and without anything from
//! elsewhere, so that it works offline and under a strict Content-Security-Policy.

use std::{
    fmt::{self, Write},
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    openapi::describe,
    routes::TABLE,
    server::{Body, Call, Error, body},
};

const STYLE: &str = include_str!("docs/style.css");

static OPEN: LazyLock<Bytes> = LazyLock::new(|| render(&describe(TABLE, false)).into());
static KEYED: LazyLock<Bytes> = LazyLock::new(|| render(&describe(TABLE, true)).into());

/// Allows the page its one style, named by its hash, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// `GET /docs`
pub(super) async fn page(call: Call) -> Result<Response<Body>, Error> {
    let page = if call.shared.options.keys.is_open() {
        &*OPEN
    } else {
        &*KEYED
    };
    html(page.clone())
}

/// A response with a page of HTML that needs nothing but the one style.
pub(super) fn html(page: impl Into<Bytes>) -> Result<Response<Body>, Error> {
    let policy = HeaderValue::from_str(&POLICY).map_err(|error| Error::internal(&error))?;
    let mut response = Response::new(body::full(page));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    Ok(response)
}

/// A page of HTML with this title around what is its body already.
pub(super) fn frame(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>"
    )
}

/// The page of a document.
fn render(document: &Value) -> String {
    let mut page = String::with_capacity(512 << 10);
    // Writing to a string never fails.
    let _ = write_page(&mut page, document);
    page
}

fn write_page(page: &mut String, document: &Value) -> fmt::Result {
    let title = escape(text(&document["info"]["title"]));
    let version = escape(text(&document["info"]["version"]));
    write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title} {version}</h1>\
         <p>{}</p><p><a href=\"openapi.json\">openapi.json</a></p>",
        escape(text(&document["info"]["description"]))
    )?;
    let paths = entries(&document["paths"]);
    let mut tags: Vec<&str> = vec![];
    for operation in paths.clone().flat_map(|(_, methods)| entries(methods)) {
        let tag = text(&operation.1["tags"][0]);
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    for tag in tags {
        write!(page, "<h2>{}</h2>", escape(tag))?;
        for (path, methods) in paths.clone() {
            for (method, operation) in entries(methods) {
                if text(&operation["tags"][0]) == tag {
                    write_operation(page, path, method, operation)?;
                }
            }
        }
    }
    page.push_str("<h2>schemas</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let name = escape(name);
        write!(
            page,
            "<details id=\"{name}\" open><summary>{name}</summary>"
        )?;
        write_schema(page, schema)?;
        page.push_str("</details>");
    }
    page.push_str("</body></html>");
    Ok(())
}

fn write_operation(page: &mut String, path: &str, method: &str, operation: &Value) -> fmt::Result {
    let id = escape(text(&operation["operationId"]));
    write!(
        page,
        "<details id=\"{id}\"><summary><b>{}</b> <code>{}</code> {}</summary>\
         <p>Operation <code>{id}</code>, for: {}</p>",
        method.to_ascii_uppercase(),
        escape(path),
        escape(text(&operation["summary"])),
        escape(text(&operation["x-access"])),
    )?;
    let parameters = operation["parameters"].as_array();
    for parameter in parameters.into_iter().flatten() {
        write!(
            page,
            "<h4>{} parameter <code>{}</code>{}</h4><p>{}</p>",
            escape(text(&parameter["in"])),
            escape(text(&parameter["name"])),
            if parameter["required"] == true {
                ", required"
            } else {
                ""
            },
            escape(text(&parameter["description"])),
        )?;
        write_schema(page, &parameter["schema"])?;
    }
    for (kind, content) in entries(&operation["requestBody"]["content"]) {
        write!(page, "<h4>body <code>{}</code></h4>", escape(kind))?;
        write_schema(page, &content["schema"])?;
    }
    for (status, response) in entries(&operation["responses"]) {
        let description = escape(text(&response["description"]));
        write!(page, "<h4>{} {description}</h4>", escape(status))?;
        for (kind, content) in entries(&response["content"]) {
            write!(page, "<p><code>{}</code></p>", escape(kind))?;
            write_schema(page, &content["schema"])?;
        }
    }
    page.push_str("</details>");
    Ok(())
}

/// A schema as JSON, in which names of other schemas are links.
fn write_schema(page: &mut String, schema: &Value) -> fmt::Result {
    const PREFIX: &str = "#/components/schemas/";
    let json = escape(&format!("{schema:#}"));
    page.push_str("<pre>");
    let mut rest = &*json;
    while let Some(at) = rest.find(PREFIX) {
        let (before, after) = rest.split_at(at);
        let after = &after[PREFIX.len()..];
        let name = &after[..after.find("&quot;").unwrap_or(after.len())];
        write!(page, "{before}<a href=\"#{name}\">{name}</a>")?;
        rest = &after[name.len()..];
    }
    write!(page, "{rest}</pre>")
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> + Clone {
    let map = value.as_object().into_iter();
    map.flatten().map(|(key, value)| (key.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_operation_and_links_only_into_itself() {
        let page = render(&describe(TABLE, true));
        for route in TABLE {
            let id = format!("<details id=\"{}\">", route.operation);
            assert!(page.contains(&id), "{}", route.operation);
        }
        for link in page.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap();
            let target = link.strip_prefix('#').map(|name| format!("id=\"{name}\""));
            let known = target.is_some_and(|target| page.contains(&target));
            assert!(known || link == "openapi.json", "{link}");
        }
        for foreign in ["<script", "src=", "@import", "url(", "//cdn"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn texts_of_the_document_are_no_markup() {
        let document = serde_json::json!({
            "info": {"title": "<script>", "description": "a\" b='c' & <i>"},
            "paths": {"/<b>": {"get": {
                "operationId": "x\"><script>", "tags": ["<u>"],
                "responses": {"200": {"description": "<img>"}}
            }}}
        });
        let page = render(&document);
        for markup in ["<script", "<i>", "<img", "<u>", "/<b>", "x\">"] {
            assert!(!page.contains(markup), "{markup}");
        }
    }
}
