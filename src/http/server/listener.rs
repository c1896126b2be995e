//! Accepts connections, keeps them within their limits and drains them at the end.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    bodies::RequestBody,
    call::Shared,
    connection::{Activity, Connection, Due, client_at},
    dispatch::Dispatcher,
    options::Options,
    progress::StreamExecutor,
    slots::ConnectionSlots,
    socket::{Client, Socket},
    unread::{CONNECTION_WINDOW, STREAM_WINDOW, UnreadBodies},
};
use crate::http::Services;

/// Most bytes in the head of a request. hyper reads somewhat more before it refuses one; `callers` does not.
pub const HEAD_LIMIT: usize = 32 << 10;
/// Most headers of a request.
const HEADERS: usize = 100;

/// The HTTP server.
pub struct Server {
    dispatcher: Arc<Dispatcher>,
    http1: Arc<http1::Builder>,
    http2: Arc<http2::Builder<StreamExecutor>>,
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
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // Only a backstop: see `connection::Activity`.
            .header_read_timeout(options.idle_timeout + options.header_timeout)
            .max_headers(HEADERS)
            .max_buf_size(HEAD_LIMIT);
        let mut http2 = http2::Builder::new(StreamExecutor {
            limit: options.stall_timeout,
        });
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(128)
            // What a client sends and no handler has read, and what the server sends and no client
            // has taken, of one connection.
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(32 << 10)
            .max_header_list_size(HEAD_LIMIT as u32)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        Self {
            dispatcher: Arc::new(Dispatcher::new(Shared::new(services, options, drain, cut))),
            http1: Arc::new(http1),
            http2: Arc::new(http2),
            abort: CancellationToken::new(),
        }
    }

    /// Serves until [`Options::last_responses`] after `cut` was cancelled at the latest.
    pub async fn serve(self, listener: TcpListener) {
        let shared = self.dispatcher.shared().clone();
        let slots = Arc::new(Semaphore::new(shared.options.max_connections));
        let connections = TaskTracker::new();
        let is_full = Arc::<AtomicBool>::default();
        let mut pause = PAUSE_MIN;
        loop {
            let accepted = tokio::select! {
                biased;
                () = shared.cut.cancelled() => break,
                accepted = accept(&listener, &slots, &is_full) => accepted,
            };
            match accepted {
                Ok((stream, peer, slot)) => {
                    pause = PAUSE_MIN;
                    let is_full = is_full.clone();
                    connections.spawn(self.serve_connection(stream, peer, slot, is_full));
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
        slot: OwnedSemaphorePermit,
        is_full: Arc<AtomicBool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let peer = client_at(peer.ip());
        let (http1, http2) = (self.http1.clone(), self.http2.clone());
        let dispatcher = self.dispatcher.clone();
        let shared = dispatcher.shared().clone();
        let end = End {
            // Who comes while the server drains has not sent a request yet.
            leave: if shared.drain.is_cancelled() {
                shared.cut.clone()
            } else {
                shared.drain.clone()
            },
            abort: self.abort.clone(),
            is_full,
        };
        async move {
            // The socket is closed before others get its slot.
            let _slot = slot;
            let stream = stream;
            // Events are small and must not wait for each other.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection broke at once");
                return;
            }
            let activity = Activity::new();
            let is_http2 = tokio::select! {
                is_http2 = speaks_http2(&stream) => is_http2.unwrap_or(false),
                () = sleep(shared.options.header_timeout) => return,
                () = end.abort.cancelled() => return,
                () = end.leave.cancelled() => return,
            };
            let stall = shared.options.stall_timeout;
            let socket = Socket::new(stream, activity.clone(), stall);
            let client = socket.client();
            let socket = TokioIo::new(socket);
            let service = {
                let connection = Connection {
                    activity: activity.clone(),
                    unread: Some(UnreadBodies::new(shared.bodies.clone(), peer.clone())),
                    peer,
                    slots: ConnectionSlots::new(shared.options.connection_requests),
                };
                service_fn(move |request: Request<Incoming>| {
                    let arrivals = connection.activity.arrivals();
                    let request = request.map(|body| RequestBody::arriving(body, arrivals));
                    // A connection would keep the room for what a request does as long as it is open.
                    Box::pin(dispatcher.clone().handle(connection.clone(), request))
                })
            };
            let options = &shared.options;
            if is_http2 {
                let connection = pin!(http2.serve_connection(socket, service));
                let shutdown = |connection: Pin<&mut _>| {
                    http2::Connection::graceful_shutdown(connection);
                };
                end.carry(connection, shutdown, &activity, &client, options)
                    .await;
            } else {
                let connection = pin!(http1.serve_connection(socket, service).with_upgrades());
                let shutdown = |connection: Pin<&mut _>| {
                    http1::UpgradeableConnection::graceful_shutdown(connection);
                };
                end.carry(connection, shutdown, &activity, &client, options)
                    .await;
            }
        }
    }
}

/// What ends a connection from this side.
struct End {
    /// After the requests in progress.
    leave: CancellationToken,
    /// At once.
    abort: CancellationToken,
    /// All connections are taken: idle ones make room.
    is_full: Arc<AtomicBool>,
}

impl End {
    /// Serves a connection until it ends; `shutdown` lets it end after the requests in progress.
    async fn carry<C: Future<Output = hyper::Result<()>>>(
        &self,
        mut connection: Pin<&mut C>,
        shutdown: fn(Pin<&mut C>),
        activity: &Activity,
        client: &Client,
        options: &Options,
    ) {
        let (mut leaving, mut idle) = (false, false);
        loop {
            let is_full = self.is_full.load(Ordering::Relaxed);
            let next = match activity.due(options, is_full) {
                Due::Wait(time) => time,
                Due::HangUp => return,
                // What is left of responses is not taken.
                Due::Shutdown if idle => return,
                Due::Shutdown => {
                    idle = true;
                    leaving = true;
                    shutdown(connection.as_mut());
                    tokio::time::Instant::now() + options.header_timeout
                }
            };
            let ended = poll_fn(|cx| match connection.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending if activity.waits_for_response() && client.has_left(cx) => {
                    Poll::Ready(Ok(()))
                }
                Poll::Pending => Poll::Pending,
            });
            tokio::select! {
                result = ended => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection broke");
                    }
                    return;
                }
                () = sleep_until(next) => {}
                () = self.abort.cancelled() => return,
                () = self.leave.cancelled(), if !leaving => {
                    leaving = true;
                    shutdown(connection.as_mut());
                }
            }
        }
    }
}

/// What a client sends first that speaks HTTP/2 without having asked for it in HTTP/1.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether what comes first is [`PREFACE`]; it stays to be read. hyper-util's `auto` reads those bytes apart
/// from the rest of a head, and with that doubles the buffer of every connection.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0; PREFACE.len()];
    let mut pause = PAUSE_MIN;
    loop {
        let count = stream.peek(&mut bytes).await?;
        if count == 0 || bytes[..count] != PREFACE[..count] {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // The rest of it is under way: a socket that can be read says so only once.
        sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    is_full: &AtomicBool,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = if let Ok(slot) = slots.clone().try_acquire_owned() {
        slot
    } else {
        is_full.store(true, Ordering::Relaxed);
        let slot = slots.clone().acquire_owned().await;
        is_full.store(false, Ordering::Relaxed);
        slot.map_err(io::Error::other)?
    };
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
