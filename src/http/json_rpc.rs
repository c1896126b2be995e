//! Messages of JSON-RPC 2.0, which MCP and A2A consist of.

use futures::{FutureExt, future::BoxFuture};
use hyper::{Response, StatusCode};

use super::{
    idempotency::OnlyRead,
    server::{
        Body, Call, Error, body,
        deferred::{self, Ready},
    },
};
use crate::{
    abandon,
    contention::shares::in_this_name,
    value::{Map, Value},
};

/// The body is no JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The body is no request.
pub const INVALID_REQUEST: i64 = -32600;
/// There is no such method.
pub const NO_METHOD: i64 = -32601;
/// The parameters make no sense.
pub const INVALID_PARAMS: i64 = -32602;
/// The server failed.
const INTERNAL: i64 = -32603;
/// In conflict with the state of things: it may go well later.
pub const CONFLICT: i64 = -32000;

/// A request that wants a response.
pub struct Request {
    pub id: Value,
    pub method: String,
    pub params: Map,
}

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// An error object, in a response with status 200.
    Refused { code: i64, message: String },
    /// An error of HTTP: whoever does not know JSON-RPC must understand it too, as with a status by which clients
    /// try again.
    Http(Error),
}

impl Failure {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self::Refused {
            code,
            message: message.into(),
        }
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub fn no_method(method: &str) -> Self {
        let method: String = method.chars().take(80).collect();
        Self::new(NO_METHOD, format!("Method not found: {method}"))
    }

    /// The message to the request with this id, whose response has begun already.
    pub fn into_message(self, id: &Value) -> Value {
        match self {
            Self::Refused { code, message } => failed(id, code, &message),
            Self::Http(error) => failed(id, INTERNAL, &error.detail),
        }
    }

    /// The response to the request with this id.
    pub fn into_response(self, id: &Value) -> Result<Response<Body>, Error> {
        match self {
            Self::Refused { code, message } => {
                Ok(body::json(StatusCode::OK, &failed(id, code, &message)))
            }
            Self::Http(error) => Err(error),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.status {
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::CREATED => Self::params(error.detail),
            StatusCode::CONFLICT => Self::new(CONFLICT, error.detail),
            _ => Self::Http(error),
        }
    }
}

/// A message with the result of a request.
pub fn result(id: &Value, result: Value) -> Value {
    let mut map = Map::with_capacity(3);
    map.insert("jsonrpc", "2.0");
    map.insert("id", id.clone());
    map.insert("result", result);
    Value::map(map)
}

/// A message with the failure of a request.
pub fn failed(id: &Value, code: i64, message: &str) -> Value {
    let mut map = Map::with_capacity(3);
    map.insert("jsonrpc", "2.0");
    map.insert("id", id.clone());
    let error = Map::from([
        ("code", Value::from(code)),
        ("message", Value::str(message)),
    ]);
    map.insert("error", Value::map(error));
    Value::map(map)
}

/// The id of a request: a text or a number.
pub fn id(message: &Map) -> Option<&Value> {
    let id = message.get("id");
    id.filter(|id| matches!(id, Value::Str(_)) || id.as_f64().is_some())
}

/// Whether a message says that it is one of JSON-RPC 2.0.
pub fn has_version(message: &Map) -> bool {
    message.get("jsonrpc").and_then(Value::as_str) == Some("2.0")
}

/// The parameters of a request, which need not be there.
pub fn params(message: &Map) -> Result<Map, Failure> {
    match message.get("params") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Map(map)) => Ok((**map).clone()),
        Some(_) => Err(Failure::params("Invalid params: must be an object")),
    }
}

/// Whether the client takes a response of this kind, by its header `Accept`. One without the header takes everything.
pub fn accepts(accept: Option<&str>, kind: &str) -> bool {
    let Some(accept) = accept else { return true };
    let (family, _) = kind.split_once('/').unwrap_or((kind, ""));
    accept.split(',').any(|range| {
        let range = range.split(';').next().unwrap_or_default().trim();
        let of_family = range.strip_suffix("/*");
        range.eq_ignore_ascii_case(kind)
            || of_family.is_some_and(|one| one == "*" || one.eq_ignore_ascii_case(family))
    })
}

/// Does what only reads for as long as its client waits: by its route alone the request could change something.
pub fn reading<'a, T: Send + 'a>(
    read: impl Future<Output = Result<T, Failure>> + Send + 'a,
) -> BoxFuture<'a, Result<T, Failure>> {
    let read = read.boxed();
    let waited_for = async {
        let read = abandon::unless_client_gone(read).await;
        // Nobody gets this one.
        read.unwrap_or_else(|| Err(Error::unavailable("The client has left.").into()))
    };
    waited_for.boxed()
}

/// The response with a message that is there later. That to a request with an idempotency key comes whole, so that it
/// can be stored.
pub async fn respond_later<R: Into<Ready> + Send + 'static>(
    call: &Call,
    message: BoxFuture<'static, R>,
    guard: impl Send + 'static,
) -> Response<Body> {
    if call.run_id.is_some() {
        // A run may take as long as it likes.
        let message = call.slot.lend(in_this_name(message)).await;
        drop(guard);
        return body::json(StatusCode::OK, &message.into().value);
    }
    deferred::respond(
        message,
        call.read_memory(),
        None,
        call.shared.options.heartbeat,
        guard,
    )
}

/// The response to a request, marked if that `reads` alone: of such a one nothing is stored for an idempotency
/// key, whether it went well or not.
pub fn marked(
    response: Result<Response<Body>, Error>,
    reads: bool,
) -> Result<Response<Body>, Error> {
    if !reads {
        return response;
    }
    let mut response = response.unwrap_or_else(Error::into_response);
    response.extensions_mut().insert(OnlyRead);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_what_its_header_names_and_without_one_everything() {
        let json = "application/json";
        for (accept, taken) in [
            (None, true),
            (Some("*/*"), true),
            (Some("application/*;q=0.1"), true),
            (Some("text/html, Application/JSON; q=0.5"), true),
            (Some("text/html"), false),
            (Some("text/*"), false),
            (Some(""), false),
        ] {
            assert_eq!(accepts(accept, json), taken, "{accept:?}");
        }
    }

    #[test]
    fn refusals_are_error_objects_and_what_clients_repeat_is_a_status() {
        let refused = Failure::from(Error::no_checkpoint("x"));
        assert!(matches!(
            refused,
            Failure::Refused {
                code: INVALID_PARAMS,
                ..
            }
        ));
        let busy = Failure::from(Error::busy());
        assert!(matches!(busy, Failure::Refused { code: CONFLICT, .. }));
        let later = Failure::from(Error::unavailable("later"));
        assert!(
            later
                .into_response(&Value::Null)
                .is_err_and(|error| error.status == 503)
        );
    }
}
