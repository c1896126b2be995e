//! The page that a browser shows at `/`: the graphs of this server and commands to copy.

use std::{fmt::Write, sync::Arc};

use hyper::{
    HeaderMap, Response,
    header::{ACCEPT, CACHE_CONTROL, HOST, HeaderValue, VARY},
};

use super::{
    docs,
    server::{Body, Call, Error},
    system,
};
use crate::assistants::example;

/// `GET /`: what `/ok` responds with, except to those who would rather have a page.
pub(super) async fn root(call: Call) -> Result<Response<Body>, Error> {
    if !wants_page(&call.headers) {
        return system::ok(call).await;
    }
    let page = render(&call);
    let mut response = docs::html(page)?;
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Whether the client names HTML among what it accepts, as browsers do; `*/*` is no wish for it.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.flat_map(|list| list.split(',')).any(|one| {
        let kind = one.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/html")
    })
}

/// The page. The path needs no key, so that with keys it names no graph.
fn render(call: &Call) -> String {
    let is_open = call.shared.options.is_open();
    let has_keys = !call.shared.options.keys.is_open();
    let host = call.header(HOST.as_str()).unwrap_or("localhost:2024");
    let graphs = if is_open {
        call.assistants().examples()
    } else {
        vec![]
    };
    page(host, is_open, has_keys, &graphs)
}

fn page(host: &str, is_open: bool, has_keys: bool, graphs: &[(Arc<str>, String)]) -> String {
    let mut body = String::from("<h1>Backstitch</h1><p>This server runs agent graphs.</p>");
    let key = if is_open {
        ""
    } else if !has_keys {
        body += "<p>It wants to know who calls: the program that serves it says how.</p>";
        ""
    } else {
        body += "<p>It wants a key: with one, <code>POST /assistants/search</code> lists its graphs. \
                 In the commands it is taken from <code>$BACKSTITCH_API_KEY</code>.</p>";
        " -H \"x-api-key: $BACKSTITCH_API_KEY\""
    };
    if !graphs.is_empty() {
        let names: Vec<String> = graphs.iter().map(|(name, _)| docs::escape(name)).collect();
        // Writing to a string never fails.
        let _ = write!(
            body,
            "<p>Its graphs: <b>{}</b>. Try:</p>",
            names.join("</b>, <b>")
        );
    }
    let mut command = |text: &str| {
        let _ = write!(body, "<pre>{}</pre>", docs::escape(text));
    };
    for (name, input) in graphs {
        let run = serde_json::json!({"assistant_id": &**name}).to_string();
        let run = format!("{}, \"input\": {input}}}", run.trim_end_matches('}'));
        let run = example::quoted(&run);
        command(&format!("curl -N http://{host}/runs/stream{key} -d {run}"));
    }
    command(&format!(
        "curl http://{host}/assistants/search{key} -d '{{}}'"
    ));
    command(&format!("curl http://{host}/threads/search{key} -d '{{}}'"));
    body += "<p><a href=\"docs\">All operations</a>, as a document: \
             <a href=\"openapi.json\">openapi.json</a></p>";
    docs::frame("Backstitch", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_names_html_gets_a_page() {
        let accept = |value: &'static str| {
            wants_page(&HeaderMap::from_iter([(
                ACCEPT,
                HeaderValue::from_static(value),
            )]))
        };
        assert!(accept("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(accept("application/json, Text/HTML;q=0.9"));
        assert!(!accept("*/*") && !accept("application/json") && !accept("text/plain"));
        assert!(!wants_page(&HeaderMap::new()));
    }

    #[test]
    fn with_keys_the_page_says_what_to_do_with_one() {
        let page = page("example.org", false, true, &[]);
        assert!(page.contains("BACKSTITCH_API_KEY") && !page.contains("Its graphs"));
    }

    #[test]
    fn names_are_no_markup_and_commands_can_be_copied() {
        let page = page(
            "h\"><script>",
            true,
            false,
            &[("<b>'s".into(), "{}".to_owned())],
        );
        assert!(
            !page.contains("<script") && !page.contains("<b>'s"),
            "{page}"
        );
        assert!(
            page.contains("&#39;\\&#39;&#39;s") || page.contains("'\\''s"),
            "{page}"
        );
    }
}
