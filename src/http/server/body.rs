//! Bodies of responses: whole ones, empty ones, texts and JSON.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

use crate::value::Value;

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// A body ends here without being complete. The connection shows it to the client, who may come
/// back for the rest.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body was broken off")]
pub struct BrokenOff;

/// A body that is there as a whole.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A response without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// A response with a text.
pub fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A response with a JSON value.
pub fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut bytes = Vec::with_capacity(512);
    value.write_json(&mut bytes);
    json_text(status, bytes)
}

/// A response with a value whose JSON text is there.
pub fn json_text(status: StatusCode, text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
