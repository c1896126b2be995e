//! Accepts connections, keeps them within their limits and drains them at the end.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    bodies::RequestBody,
    call::Shared,
    connection::{Activity, Connection, Due, Socket},
    dispatch::Dispatcher,
    options::Options,
    progress::StreamExecutor,
};
use crate::http::Services;

/// Most bytes in the head of a request.
const HEAD_LIMIT: usize = 32 << 10;
/// Most headers of a request.
const HEADERS: usize = 100;

/// The HTTP server.
pub struct Server {
    dispatcher: Arc<Dispatcher>,
    builder: Arc<auto::Builder<StreamExecutor>>,
    /// Hangs up what is left when the time for the last responses is over.
    abort: CancellationToken,
}

impl Server {
    /// A server whose handlers call `services`.
    ///
    /// When `drain` is cancelled connections end after the requests they carry, and new ones are
    /// still accepted: a load balancer learns from `/ready` that it has to send no more, and until then
    /// reads are answered and new runs are refused with a status that it tries elsewhere. When `cut` is cancelled nothing more is accepted, event streams
    /// break off after what is ready to be sent, and requests have [`Options::last_responses`] to
    /// finish.
    pub fn new(
        services: Services,
        options: Options,
        drain: CancellationToken,
        cut: CancellationToken,
    ) -> Self {
        let mut builder = auto::Builder::new(StreamExecutor {
            limit: options.stall_timeout,
        });
        builder
            .http1()
            .timer(TokioTimer::new())
            // Only a backstop: see `connection::Activity`.
            .header_read_timeout(options.idle_timeout + options.header_timeout)
            .max_headers(HEADERS)
            .max_buf_size(HEAD_LIMIT);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(128)
            // What a client sends and no handler has read, and what the server sends and no client
            // has taken, of one connection.
            .initial_stream_window_size(128 << 10)
            .initial_connection_window_size(256 << 10)
            .max_send_buf_size(32 << 10)
            .max_header_list_size(HEAD_LIMIT as u32)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        Self {
            dispatcher: Arc::new(Dispatcher::new(Shared::new(services, options, drain, cut))),
            builder: Arc::new(builder),
            abort: CancellationToken::new(),
        }
    }

    /// Serves until [`Options::last_responses`] after `cut` was cancelled at the latest.
    pub async fn serve(self, listener: TcpListener) {
        let shared = self.dispatcher.shared().clone();
        let slots = Arc::new(Semaphore::new(shared.options.max_connections));
        let connections = TaskTracker::new();
        let mut pause = PAUSE_MIN;
        loop {
            let accepted = tokio::select! {
                biased;
                () = shared.cut.cancelled() => break,
                accepted = accept(&listener, &slots) => accepted,
            };
            match accepted {
                Ok((stream, peer, slot)) => {
                    pause = PAUSE_MIN;
                    let connection = self.serve_connection(stream, peer);
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    // Most likely out of file descriptors: some come back when connections end.
                    tracing::warn!(%error, "cannot accept connections");
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        drop(listener);
        connections.close();
        shared.sockets.close();
        let limit = shared.options.last_responses;
        let ended = async { tokio::join!(connections.wait(), shared.sockets.wait()) };
        if timeout(limit, ended).await.is_err() {
            tracing::warn!(open = connections.len(), "hanging up on slow requests");
            self.abort.cancel();
            connections.wait().await;
        }
    }

    /// One connection to its end.
    fn serve_connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + use<> {
        let peer: Arc<str> = peer.ip().to_canonical().to_string().into();
        let (dispatcher, builder) = (self.dispatcher.clone(), self.builder.clone());
        let shared = dispatcher.shared().clone();
        let abort = self.abort.clone();
        // Who comes while the server drains has not sent a request yet.
        let leave = if shared.drain.is_cancelled() {
            shared.cut.clone()
        } else {
            shared.drain.clone()
        };
        async move {
            // Events are small and must not wait for each other.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection broke at once");
                return;
            }
            let activity = Activity::new();
            let stall = shared.options.stall_timeout;
            let socket = TokioIo::new(Socket::new(stream, activity.clone(), stall));
            let service = {
                let connection = Connection {
                    activity: activity.clone(),
                    peer,
                    slots: Arc::new(Semaphore::new(shared.options.connection_requests)),
                };
                service_fn(move |request: Request<Incoming>| {
                    let request = request.map(RequestBody::new);
                    dispatcher.clone().handle(connection.clone(), request)
                })
            };
            let mut connection = pin!(builder.serve_connection_with_upgrades(socket, service));
            let (mut leaving, mut idle) = (false, false);
            loop {
                let next = match activity.due(&shared.options) {
                    Due::Wait(time) => time,
                    Due::HangUp => return,
                    // What is left of responses is not taken.
                    Due::Shutdown if idle => return,
                    Due::Shutdown => {
                        idle = true;
                        leaving = true;
                        connection.as_mut().graceful_shutdown();
                        tokio::time::Instant::now() + shared.options.header_timeout
                    }
                };
                tokio::select! {
                    result = connection.as_mut() => {
                        if let Err(error) = result {
                            tracing::debug!(%error, "a connection broke");
                        }
                        return;
                    }
                    () = sleep_until(next) => {}
                    () = abort.cancelled() => return,
                    () = leave.cancelled(), if !leaving => {
                        leaving = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await;
    let slot = slot.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, slot))
}

/// Errors of one connection that ended before it was accepted.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
