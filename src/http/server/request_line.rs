//! The line that the log has of a request.

use std::sync::Arc;

use hyper::{Method, Request, Response, header::CONTENT_LOCATION};
use tokio::time::Instant;

use super::body::Body;

/// A request in the log; nothing of it is stored unless it is logged. The query stays out, since clients put
/// values there.
pub struct RequestLine(Option<(Method, String, Arc<str>, Instant)>);

impl RequestLine {
    /// That of a request that has just come.
    pub fn of<B>(request: &Request<B>, id: &Arc<str>) -> Self {
        Self(tracing::enabled!(tracing::Level::DEBUG).then(|| {
            let path = request.uri().path().to_owned();
            (request.method().clone(), path, id.clone(), Instant::now())
        }))
    }

    /// Logs it once the head of its response is there, with the run that it created.
    pub fn log(self, response: &Response<Body>) {
        let Some((method, path, request_id, begin)) = self.0 else {
            return;
        };
        let resource = response.headers().get(CONTENT_LOCATION);
        let resource = resource.and_then(|value| value.to_str().ok());
        tracing::debug!(
            %method,
            path,
            status = response.status().as_u16(),
            milliseconds = begin.elapsed().as_secs_f64() * 1000.0,
            request_id = &*request_id,
            resource,
            "request"
        );
    }
}
