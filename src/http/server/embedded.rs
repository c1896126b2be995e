//! The server as a service of another HTTP server of the same process, with the checks and limits that
//! its own connections have.

use std::{
    convert::Infallible,
    fmt,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hyper::{Request, Response, StatusCode, body::Body as HttpBody};
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

use super::{
    bodies::{BoxError, RequestBody, ResponseBody},
    body,
    call::Shared,
    connection::{Activity, Connection, client_at},
    dispatch::Dispatcher,
    handover,
    options::Options,
    slots::ConnectionSlots,
    weigh::Unanswered,
};
use crate::http::Services;

/// In the extensions of a request: the address of the machine that sends it. Without keys and without
/// an authentication of the program the memory for requests is shared by address; requests without
/// one share one part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The server as a service that another HTTP server calls, such as axum's. Cheap to clone.
#[derive(Clone)]
pub struct Embedded {
    dispatcher: Arc<Dispatcher>,
    /// Another server bounds its connections.
    slots: ConnectionSlots,
    /// Requests whose responses have not ended.
    requests: Arc<Mutex<TaskTracker>>,
}

impl Embedded {
    /// A service whose handlers call `services`; `drain` and `cut` are as those of a server that
    /// listens.
    pub(crate) fn new(
        services: Services,
        options: Options,
        drain: CancellationToken,
        cut: CancellationToken,
    ) -> Self {
        // Those who wait for the share of a principal must not keep others out.
        let slots = ConnectionSlots::new(usize::MAX);
        let shared = Shared::new(services, options, drain, cut);
        Self {
            dispatcher: Arc::new(Dispatcher::new(shared)),
            slots,
            requests: Arc::default(),
        }
    }

    /// Waits for the ends of the requests that are here now, those of the program's own routes among them, and
    /// of the connections that speak another protocol, as long as the last responses may take.
    pub(crate) async fn ended(&self) {
        let shared = self.dispatcher.shared();
        shared.sockets.close();
        // Those that come later are not waited for: the program still listens.
        let requests = std::mem::take(&mut *self.requests.lock());
        requests.close();
        let limit = shared.options.last_responses;
        let ended = async { tokio::join!(shared.sockets.wait(), requests.wait()) };
        timeout(limit, ended).await.ok();
    }

    async fn respond(self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let open = self.requests.lock().token();
        let peer = request.extensions().get::<Peer>().copied();
        let activity = Activity::new();
        let progress = activity.progress().clone();
        let connection = Connection {
            activity,
            peer: peer.map_or_else(|| "embedded".into(), |Peer(address)| client_at(address)),
            slots: self.slots.clone(),
            // Its windows are the program's.
            unread: None,
        };
        let stall = self.dispatcher.shared().options.stall_timeout;
        match self.dispatcher.handle(connection, request).await {
            Ok(response) => response.map(|body| handover::in_time(body, progress, stall, open)),
            // How a request stays without a response is the program's.
            Err(Unanswered) => body::empty(StatusCode::SERVICE_UNAVAILABLE).map(ResponseBody::of),
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Embedded
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
        let response = self.clone().respond(request.map(RequestBody::new));
        response.map(Ok).boxed()
    }
}
