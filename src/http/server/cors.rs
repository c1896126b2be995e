//! Which web pages may call, and what their scripts may read.

use hyper::{
    HeaderMap, Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
    },
};

use super::body::{self, Body};

/// Which origins may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// Any page.
    Any,
    /// Pages of these origins, such as `https://app.example`.
    Origins(Vec<String>),
}

const METHODS: HeaderValue =
    HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
/// Clients find the run's id and the way back to its stream in the last two.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-pagination-total, x-pagination-next, content-location, location");
const VARY_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, \
     Access-Control-Request-Private-Network",
);

impl Cors {
    fn allows(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::Origins(list) => list
                .iter()
                .any(|allowed| allowed.as_bytes() == origin.as_bytes())
                .then(|| origin.clone()),
        }
    }

    /// The response to a preflight; `None` if the request is not one.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let origin = headers.get(ORIGIN)?;
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let Some(allowed) = self.allows(origin) else {
            let mut refusal = body::text(StatusCode::BAD_REQUEST, "Disallowed CORS origin");
            refusal.headers_mut().insert(VARY, VARY_PREFLIGHT);
            return Some(refusal);
        };
        let mut response = body::text(StatusCode::OK, "OK");
        let out = response.headers_mut();
        out.insert(VARY, VARY_PREFLIGHT);
        out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(requested) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        if *self == Self::Any {
            let name = HeaderName::from_static("access-control-allow-private-network");
            out.insert(name, HeaderValue::from_static("true"));
        }
        Some(response)
    }

    /// Adds the headers of every response.
    pub fn mark(&self, origin: Option<&HeaderValue>, out: &mut HeaderMap) {
        out.entry(VARY)
            .or_insert(HeaderValue::from_static("Origin"));
        if let Some(allowed) = origin.and_then(|origin| self.allows(origin)) {
            out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}
