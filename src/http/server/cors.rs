//! Which web pages may call, and what their scripts may read.

use hyper::{
    HeaderMap, Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
    },
};

use super::{
    body::{self, Body},
    hosts::Origin,
};

/// The setting that lists origins.
pub const ORIGINS_SETTING: &str = "BACKSTITCH_CORS_ORIGINS";

/// Which origins may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// Any page.
    Any,
    /// Pages of the loopback interface, at any port.
    Loopback,
    /// Pages of these origins.
    Origins(Vec<Origin>),
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
    /// Parses `*` or `https://app.example,http://localhost:3000`.
    ///
    /// # Errors
    /// An entry that is no origin.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "*" {
            return Ok(Self::Any);
        }
        let origins = text.split(',').map(|entry| {
            let entry = entry.trim();
            let wrong = || {
                format!(
                    "`{entry}` is no origin; write `https://name`, `http://name:port` or only `*`"
                )
            };
            Origin::parse(entry).ok_or_else(wrong)
        });
        Ok(Self::Origins(origins.collect::<Result<_, _>>()?))
    }

    /// Whether pages of an origin may call. `null`, which pages without an origin send, is allowed
    /// only where all are.
    pub fn allows(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => Origin::of(origin).is_some_and(|origin| origin.is_loopback()),
            Self::Origins(list) => Origin::of(origin)
                .is_some_and(|origin| list.iter().any(|listed| listed.is_equal(&origin))),
        }
    }

    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match self {
            Self::Any => Some(HeaderValue::from_static("*")),
            _ => self.allows(origin).then(|| origin.clone()),
        }
    }

    /// The response to a preflight of an allowed page; `None` if the request is not one.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let origin = headers.get(ORIGIN)?;
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let allowed = self.allowed(origin)?;
        let mut response = body::text(StatusCode::OK, "OK");
        let out = response.headers_mut();
        out.insert(VARY, VARY_PREFLIGHT);
        out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(requested) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        // Browsers may ask before a page reaches into a private network, as this machine is one.
        let name = HeaderName::from_static("access-control-allow-private-network");
        out.insert(name, HeaderValue::from_static("true"));
        Some(response)
    }

    /// Adds the headers of every response.
    pub fn mark(&self, origin: Option<&HeaderValue>, out: &mut HeaderMap) {
        out.entry(VARY)
            .or_insert(HeaderValue::from_static("Origin"));
        if let Some(allowed) = origin.and_then(|origin| self.allowed(origin)) {
            out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}
