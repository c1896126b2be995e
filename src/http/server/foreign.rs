//! Services of other programs behind one type, and the rest of this server as a service for them.

use std::{
    convert::Infallible,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, poll_fn},
};
use hyper::{Request, Response, body::Body as HttpBody};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    bodies::{BoxError, RequestBody, ResponseBody},
    body::Body,
    error::Error,
    panics::panic_text,
};

type Respond = dyn Fn(Request<RequestBody>) -> BoxFuture<'static, Response<Body>> + Send + Sync;

/// A service that responds to requests, whatever its own type.
#[derive(Clone)]
pub struct Foreign(Arc<Respond>);

impl Foreign {
    /// A service of `tower`, such as a router of axum.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::of(move |request| {
            let mut service = service.clone();
            async move {
                let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
                let Ok(response) = service.call(request).await;
                response.map(ResponseBody::foreign)
            }
            .boxed()
        })
    }

    pub(in crate::http) fn of(
        respond: impl Fn(Request<RequestBody>) -> BoxFuture<'static, Response<Body>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(respond))
    }

    /// The service within a layer.
    pub fn within<L, B>(self, layer: &L) -> Self
    where
        L: Layer<Next>,
        L::Service: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<Request<RequestBody>>>::Future: Send,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::new(layer.layer(Next(self)))
    }

    /// The response to a request; 500 when the service panics.
    pub(in crate::http) async fn respond(&self, request: Request<RequestBody>) -> Response<Body> {
        let work = AssertUnwindSafe(async move { (self.0)(request).await });
        work.catch_unwind().await.unwrap_or_else(|panic| {
            let panic = panic_text(panic.as_ref());
            tracing::error!(panic, "a route or a layer of the program panicked");
            Error::internal(&"a route or a layer of the program panicked").into_response()
        })
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").finish_non_exhaustive()
    }
}

/// What comes after a layer: the next one, or the server itself.
#[derive(Clone, Debug)]
pub struct Next(Foreign);

impl<B> Service<Request<B>> for Next
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = (self.0.0)(request.map(RequestBody::new));
        response
            .map(|response| Ok(response.map(ResponseBody::of)))
            .boxed()
    }
}
