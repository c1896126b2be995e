//! The protocol over a WebSocket: commands, their replies and events on one connection. A client that
//! sends what cannot be taken, is silent or reads nothing is cut off.

mod incoming;
mod missed;
mod session;
mod subscribed;

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt, future::BoxFuture};
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{
        ALLOW, CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as SocketError, Message,
        error::CapacityError,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};
use tokio_util::sync::CancellationToken;

use self::{
    incoming::Incoming,
    session::{Coming, Session, takes_slot},
};
use crate::{
    budget::Reservation,
    contention::shares::in_this_name,
    http::{
        protocol::message::Command,
        server::{
            Body, Error, body,
            call::{Call, StreamSlot},
            request_body,
            slots::{AnotherSlot, Slot},
        },
    },
    stream::{Memory, protocol::Event},
    threads::protocol::Next,
};

/// The version of the WebSocket protocol.
const VERSION: &str = "13";
/// The code of a close after which a client may try again later.
const TRY_LATER: u16 = 1013;
/// Bytes that are read from the connection and written to it at once.
const BUFFER: usize = 16 << 10;

type Socket = WebSocketStream<Incoming<TokioIo<Upgraded>>>;

/// Limits of one connection.
struct Limits {
    /// Between two pings.
    ping: Duration,
    /// How long the client may send nothing, not even the answer to a ping.
    silence: Duration,
    /// How long the client may take nothing of what is sent.
    stall: Duration,
    /// Where what it has not taken counts, and for whom.
    memory: Arc<Memory>,
    payer: Arc<str>,
    /// Of what it sends, as of the bodies of requests.
    incoming: request_body::Limits,
    /// That of the request for the connection: commands take others like it.
    slot: Arc<Slot>,
}

/// A command that waits for a slot.
struct Waiting {
    command: Command,
    _memory: Reservation,
    slot: BoxFuture<'static, Result<AnotherSlot, Error>>,
}

impl Waiting {
    /// Its slot; without one that waits there is none.
    async fn slot(waiting: &mut Option<Self>) -> Result<AnotherSlot, Error> {
        match waiting {
            Some(waiting) => (&mut waiting.slot).await,
            None => std::future::pending().await,
        }
    }
}

/// Why a connection is closed.
enum End {
    /// The client has left, or reads nothing.
    Gone,
    /// The server closes it.
    Close(CloseCode, &'static str),
}

impl End {
    /// After an error of the connection, which may be that of a message without end.
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => {
                Self::Close(CloseCode::Policy, "The message came too slowly")
            }
            io::ErrorKind::OutOfMemory => {
                let reason = "There is no memory for the message now";
                Self::Close(CloseCode::from(TRY_LATER), reason)
            }
            _ => Self::Gone,
        }
    }
}

/// `GET /threads/{thread_id}/stream/events`
pub(in crate::http) async fn connect(mut call: Call) -> Result<Response<Body>, Error> {
    let thread = call.path.thread()?;
    let Some(upgrade) = call.upgrade.take().filter(|_| wants_socket(&call.headers)) else {
        let error = Error::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        let mut response = error.into_response();
        let post = HeaderValue::from_static("POST");
        response.headers_mut().insert(ALLOW, post);
        return Ok(response);
    };
    if call.header(SEC_WEBSOCKET_VERSION.as_str()) != Some(VERSION) {
        let detail = "This server speaks version 13 of the WebSocket protocol";
        let mut response = Error::new(StatusCode::UPGRADE_REQUIRED, detail).into_response();
        let version = HeaderValue::from_static(VERSION);
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_VERSION, version);
        return Ok(response);
    }
    let key = call.headers.get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| Error::bad_request("A WebSocket needs a Sec-WebSocket-Key"))?;
    let accept = derive_accept_key(key.as_bytes());
    let slot = call.stream_slot()?;
    let options = &call.shared.options;
    let limits = Limits {
        ping: options.heartbeat,
        silence: options.idle_timeout,
        stall: options.stall_timeout,
        memory: call.runs().stream_memory().clone(),
        payer: call.payer.clone(),
        incoming: call.limits(),
        slot: call.slot.clone(),
    };
    let largest = options.body_limit;
    let config = WebSocketConfig::default()
        .max_message_size(Some(largest))
        .max_frame_size(Some(largest))
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER);
    let cut = call.shared.cut.clone();
    let session = Session::new(&call, thread);
    let serving = serve(upgrade, config, session, limits, cut, slot);
    // It goes on as long as its client likes, on behalf of whoever asked for it.
    call.shared.sockets.spawn(in_this_name(serving));

    let mut response = body::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    Ok(response)
}

fn wants_socket(headers: &HeaderMap) -> bool {
    let has = |name, word: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.filter_map(|value: &HeaderValue| value.to_str().ok());
        let mut words = texts.flat_map(|text| text.split(','));
        words.any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    has(UPGRADE, "websocket") && has(CONNECTION, "upgrade")
}

/// One connection to its end.
async fn serve(
    upgrade: OnUpgrade,
    config: WebSocketConfig,
    session: Session,
    limits: Limits,
    cut: CancellationToken,
    _slot: StreamSlot,
) {
    // A client that hangs up over the handshake is gone.
    let Ok(Ok(upgraded)) = timeout(limits.stall, upgrade).await else {
        return;
    };
    let connection = Incoming::new(TokioIo::new(upgraded), limits.incoming.clone());
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    // It is large, and there is one for each connection.
    let talk = Box::pin(talk(&mut socket, session, &limits, &cut));
    if let End::Close(code, reason) = talk.await {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        // The client's own close is waited for no longer than anything else.
        let closing = async {
            socket.close(Some(frame)).await?;
            while socket.next().await.is_some_and(|read| read.is_ok()) {}
            Ok::<_, SocketError>(())
        };
        let _ = timeout(Duration::from_secs(1), closing).await;
    }
}

async fn talk(
    socket: &mut Socket,
    mut session: Session,
    limits: &Limits,
    cut: &CancellationToken,
) -> End {
    let mut pings = interval_at(Instant::now() + limits.ping, limits.ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut heard = Instant::now();
    let mut waiting: Option<Waiting> = None;
    loop {
        let out = tokio::select! {
            biased;
            () = cut.cancelled() => {
                return End::Close(CloseCode::Restart, "The server is restarting");
            }
            slot = Waiting::slot(&mut waiting) => {
                heard = Instant::now();
                let Some(begun) = waiting.take() else {
                    continue;
                };
                session.carry_out(&begun.command, Some(slot)).await
            }
            // One command after the other, while events go on.
            read = socket.next(), if waiting.is_none() => {
                heard = Instant::now();
                match read {
                    Some(Ok(Message::Text(text))) => {
                        let read = session.read(text.as_bytes()).await;
                        drop(text);
                        socket.get_mut().message_ended();
                        match read {
                            Ok(session::Incoming::Replied(reply)) => vec![reply],
                            Ok(session::Incoming::Command(command, memory)) => {
                                if takes_slot(&command) {
                                    waiting = Some(Waiting {
                                        command,
                                        _memory: memory,
                                        slot: limits.slot.clone().take_another().boxed(),
                                    });
                                    continue;
                                }
                                session.carry_out(&command, None).await
                            }
                            Err(end) => return end,
                        }
                    }
                    Some(Ok(Message::Binary(_))) => {
                        return End::Close(CloseCode::Unsupported, "Commands are texts");
                    }
                    // What is to be said to a ping is queued already.
                    Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                        socket.get_mut().control_ended(payload.len());
                        vec![]
                    }
                    Some(Ok(Message::Frame(_))) => vec![],
                    Some(Ok(Message::Close(_))) | None => return End::Gone,
                    Some(Err(SocketError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                        return End::Close(CloseCode::Size, "The message is larger than the limit");
                    }
                    Some(Err(SocketError::Utf8(_))) => {
                        return End::Close(CloseCode::Invalid, "The message is no text");
                    }
                    Some(Err(SocketError::Protocol(_))) => {
                        return End::Close(CloseCode::Protocol, "This is no WebSocket frame");
                    }
                    Some(Err(SocketError::Io(error))) => return End::of(&error),
                    Some(Err(_)) => return End::Gone,
                }
            }
            _ = pings.tick() => {
                // Nothing is read while a command waits.
                if waiting.is_none() && heard.elapsed() > limits.silence {
                    return End::Gone;
                }
                vec![Message::Ping(Bytes::new())]
            }
            next = session.next() => match next {
                None => {
                    let reason = "Your access to this thread was withdrawn";
                    return End::Close(CloseCode::Policy, reason);
                }
                Some(Coming::Reply(reply)) => vec![reply],
                Some(Coming::Missed(event)) => vec![text_of(&event)],
                Some(Coming::Next(Next::Event(event))) => {
                    if session.admit(&event) {
                        vec![text_of(&event)]
                    } else {
                        vec![]
                    }
                }
                Some(Coming::Next(Next::Replayed)) => {
                    session.begin_anew_where_ahead().await;
                    vec![]
                }
                Some(Coming::Next(Next::Lagged)) => {
                    return End::Close(CloseCode::from(TRY_LATER), "The events were read too slowly");
                }
                Some(Coming::Next(Next::Nothing)) => {
                    return End::Close(CloseCode::Normal, "There is no such thread");
                }
            },
        };
        for message in out {
            let Some(_unread) = limits.memory.in_flight(&limits.payer, message.len()) else {
                let reason = "Other streams of this client are not read";
                return End::Close(CloseCode::from(TRY_LATER), reason);
            };
            match timeout(limits.stall, socket.send(message)).await {
                Ok(Ok(())) => {}
                _ => return End::Gone,
            }
        }
    }
}

fn text_of(event: &Event) -> Message {
    let mut out = Vec::with_capacity(event.data.len() + 256);
    event.write_json(&mut out);
    Message::text(String::from_utf8(out).unwrap_or_default())
}
