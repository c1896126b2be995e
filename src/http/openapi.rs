//! The OpenAPI 3.1 document of this server, made from the table of routes.

use std::sync::LazyLock;

use bytes::Bytes;
use hyper::{
    Method, Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Map, Value, json};

use self::{operation::Operation, schemas::Schemas};
use super::{
    idempotency,
    routes::TABLE,
    server::{Body, Call, Error, access::Right, body, router::Route},
};

mod headers;
pub(super) mod operation;
mod parameters;
mod schemas;

static OPEN: LazyLock<Bytes> = LazyLock::new(|| render(false));
static KEYED: LazyLock<Bytes> = LazyLock::new(|| render(true));

/// `GET /openapi.json`
pub(super) async fn document(call: Call) -> Result<Response<Body>, Error> {
    let bytes = if call.shared.options.keys.is_open() {
        OPEN.clone()
    } else {
        KEYED.clone()
    };
    let mut response = Response::new(body::full(bytes));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn render(with_keys: bool) -> Bytes {
    describe(TABLE, with_keys).to_string().into()
}

/// The document of a server with these routes.
pub(super) fn describe(table: &[Route], with_keys: bool) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for route in table.iter().filter(|route| route.method != Method::HEAD) {
        let object = operation(route, &mut schemas, with_keys);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let method = route.method.as_str().to_ascii_lowercase();
        path[method] = Value::Object(object);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Backstitch",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A durable runtime for agent graphs that speaks LangGraph's Agent Server protocol. \
                Unknown fields of bodies are ignored, and null is the same as a field that is left out."
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas.named()}
    });
    if with_keys {
        let scheme = json!({"type": "apiKey", "in": "header", "name": "x-api-key"});
        document["components"]["securitySchemes"] = json!({"key": scheme});
        document["security"] = json!([{"key": []}]);
    }
    document
}

fn operation(route: &Route, schemas: &mut Schemas, with_keys: bool) -> Map<String, Value> {
    let mut operation = Operation::new(schemas);
    operation.path(route.path);
    (route.describe)(&mut operation);
    let is_public = route.right == Right::Public;
    operation.put_common(is_public, with_keys);
    if idempotency::applies(&route.method, route.path) {
        operation.request_header("Idempotency-Key");
    }
    for name in headers::OF_ALL {
        operation.request_header(name);
    }
    let mut object = Map::new();
    object.insert("operationId".into(), route.operation.into());
    object.insert("tags".into(), json!([tag(route.path)]));
    object.insert("summary".into(), summary(route.operation).into());
    object.insert(
        "x-access".into(),
        format!("{:?}", route.right).to_lowercase().into(),
    );
    if with_keys && route.right == Right::Public {
        object.insert("security".into(), json!([]));
    }
    object.extend(operation.finish());
    object
}

/// The resource of a path, by which the document groups operations.
fn tag(path: &str) -> &'static str {
    match path.split('/').collect::<Vec<_>>()[..] {
        [_, "assistants", ..] => "assistants",
        [_, "runs", "crons", ..] | [_, "threads", _, "runs", "crons"] => "crons",
        [_, "runs", ..] => "stateless runs",
        [_, "threads", _, "runs", ..] => "runs",
        [
            _,
            "threads",
            _,
            "branches" | "rewind" | "btw" | "restore" | "tags",
            ..,
        ] => "branches",
        [_, "threads" | "commands", ..] => "threads",
        [_, "store", ..] => "store",
        [_, "mcp" | "a2a" | ".well-known", ..] => "agents",
        _ => "system",
    }
}

/// `create_run` is `Create run`.
fn summary(operation: &str) -> String {
    let mut text = operation.replace('_', " ");
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

#[cfg(test)]
mod tests;
