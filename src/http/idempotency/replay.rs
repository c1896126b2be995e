//! The response to a repeated request: the stored one, or a join of the run of the first request.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hyper::{
    Response, StatusCode,
    header::{HeaderName, HeaderValue},
};

use super::stored::{Shown, Stored, StoredBody};
use crate::{
    http::{
        render,
        runs::{
            join::{Replay, join_run, watch},
            location::{path, put_run},
        },
        server::{Body, Call, Error, body, sse, withdrawal::until_withdrawn},
        threads::respond_with,
    },
    id::{RunId, ThreadId},
    idempotency::{DatedResponse, Key, Outcome, Service},
    runs::{
        self, RunResult,
        request::{Join, Target},
        service::Remains,
    },
    stream::FrameSource,
    time::Timestamp,
    tree::members::Access,
    value::Value,
};

/// Says that the response is one of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// How often, after the end of a run, the response to its first request is polled for, and the
/// pause between.
const POLLS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What a request that creates a run is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creates {
    /// The run's row.
    Row,
    /// Its stream.
    Stream,
    /// Its end.
    Wait,
}

impl Creates {
    /// What requests to the route with this path create, if it is a run.
    pub fn of(route: &str) -> Option<Self> {
        let ends = [
            ("/runs", Self::Row),
            ("/runs/stream", Self::Stream),
            ("/runs/wait", Self::Wait),
        ];
        let found = ends.into_iter().find(|(end, _)| route.ends_with(end));
        found.map(|(_, creates)| creates)
    }
}

/// A request that may be repeated: its key and the hash of its content.
#[derive(Clone)]
pub struct Replayed {
    pub key: Key,
    pub hash: [u8; 16],
}

impl Replayed {
    /// The response that is stored for the first request.
    pub async fn response(
        self,
        call: &Call,
        dated: &DatedResponse,
        creates: Option<Creates>,
    ) -> Result<Response<Body>, Error> {
        let stored = Stored::decode(&dated.bytes)?;
        let body = stored.body()?;
        let shows = !matches!(&body, StoredBody::Whole(_, bytes) if bytes.is_empty());
        // What was refused was carried out on no thread: one that came since may have the id.
        let is_refusal = matches!(&body, StoredBody::Whole(status, _) if status.is_client_error());
        let is_dated = stored.is_dated() && !is_refusal;
        let stored_at = is_dated.then_some(dated.stored_at);
        authorize(call, &stored, stored_at, shows).await?;
        let mut response = match body {
            StoredBody::Run(replay) => {
                if exists(call, replay.run()).await? {
                    self.join(call, replay).await?
                } else {
                    // It went with its thread, and its response may be about to be stored.
                    match self.stored_soon(call.idempotency()).await {
                        Some(bytes) => Response::new(body::full(bytes)),
                        None => return Err(not_stored()),
                    }
                }
            }
            StoredBody::TooLarge(shown) => {
                let made = match shown {
                    Some(Shown::Run(run)) if creates == Some(Creates::Row) => {
                        self.of_orphan(call, run, Creates::Row).await
                    }
                    Some(Shown::Thread(thread)) => {
                        let view = call.threads().get_patiently(thread).await;
                        view.map(|view| Some(respond_with(&view)))
                            .map_err(Error::from)
                    }
                    _ => Ok(None),
                };
                match made {
                    Ok(Some(response)) => response,
                    Ok(None) => return Err(not_stored()),
                    Err(error) if error.status == StatusCode::NOT_FOUND => {
                        return Err(not_stored());
                    }
                    Err(error) => return Err(error),
                }
            }
            StoredBody::Whole(status, bytes) => {
                let mut response = Response::new(body::full(bytes));
                *response.status_mut() = status;
                response
            }
        };
        stored.restore_headers(&mut response);
        mark(&mut response);
        Ok(response)
    }

    /// The response to a request whose run exists and whose response is not stored; `None` if there
    /// is no such run.
    pub async fn of_orphan(
        self,
        call: &Call,
        run: RunId,
        creates: Creates,
    ) -> Result<Option<Response<Body>>, Error> {
        let thread = if call.path.has_thread() {
            let thread = call.path.thread()?;
            call.runs().authorize(&call.access, thread).await?;
            thread
        } else {
            ThreadId::of_run(run)
        };
        let run = Target { thread, run };
        let row = call.runs().find_row(run.thread, run.run).await?;
        if row.is_none() && call.runs().ended(&call.access, run).await?.is_none() {
            return Ok(None);
        }
        let replay = match (creates, row) {
            (Creates::Stream, _) => Replay::Stream(run),
            (Creates::Wait, _) => Replay::Wait(run),
            (Creates::Row, None) => return Err(gone_with_thread()),
            (Creates::Row, Some(_)) => {
                let (access, memory) = (Access::unrestricted(), call.read_memory());
                let row = call.runs().visible_run(&access, run, &memory);
                let row = row.await?.ok_or_else(gone_with_thread)?;
                let mut response = body::json(StatusCode::OK, &Value::map(render::run(&row)));
                let named = call.path.has_thread().then_some(run.thread);
                put_run(response.headers_mut(), named, run);
                mark(&mut response);
                return Ok(Some(response));
            }
        };
        let mut response = self.join(call, replay).await?;
        response.extensions_mut().insert(replay);
        mark(&mut response);
        Ok(Some(response))
    }

    /// Joins a run whose whole response is not stored: by its events, if they are there from the
    /// first one on, or by its end.
    async fn join(self, call: &Call, replay: Replay) -> Result<Response<Body>, Error> {
        // Who may is checked, and the thread of a stateless run may be gone.
        let access = Access::unrestricted();
        let run = match replay {
            Replay::Wait(run) => return join_run(call, &access, run, false).await,
            Replay::Stream(run) => run,
        };
        if call.runs().is_logged(run).await? {
            let join = Join {
                last_event_id: Some("-".into()),
                ..Join::default()
            };
            let path = path(Some(run.thread), run);
            return watch(call, &access, run, join, &path).await;
        }
        let slot = call.stream_slot()?;
        let result = call.runs().join(&access, run, None).await?;
        let result = result.unwrap_or_else(RunResult::ready_not_found);
        let service = call.idempotency().clone();
        let frames = async move {
            let result = result.await;
            // The first request is about to have received all of it.
            if let Some(bytes) = self.stored_soon(&service).await {
                return bytes;
            }
            result.to_frames(run.run, 1, &[])
        };
        let frames = Box::new(Later(Some(frames.boxed())));
        let watch = call.runs().watch_access(&call.access, run.thread);
        let response = sse::respond(call, frames, None, slot);
        Ok(until_withdrawn(response, watch))
    }

    /// The body, if it is stored within a moment.
    async fn stored_soon(&self, service: &Service) -> Option<Bytes> {
        for _ in 0..POLLS {
            match self.stored_bytes(service).await {
                Some(bytes) => return Some(bytes),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
        None
    }

    /// The body that is stored by now.
    async fn stored_bytes(&self, service: &Service) -> Option<Bytes> {
        match service.begin(&self.key, self.hash).await {
            Ok(Some(Outcome::Replay(dated))) => Stored::decode(&dated.bytes).ok()?.bytes(),
            _ => None,
        }
    }
}

/// Checks that the client still has what the first request took, and that its threads are those that the request was
/// about: a thread that is younger than the response, which was stored at this time, has the id of one that is gone.
async fn authorize(
    call: &Call,
    stored: &Stored,
    stored_at: Option<Timestamp>,
    shows: bool,
) -> Result<(), Error> {
    let checked = |remains| match (remains, stored_at) {
        (Remains::All(created_at), Some(stored_at)) if created_at > stored_at => {
            Err(thread_replaced())
        }
        _ => Ok(()),
    };
    if call.path.has_thread() {
        let thread = call.path.thread()?;
        let remains = call.runs().authorize_repeat(&call.access, thread).await?;
        // Its members are gone with it: who may still be shown something of it nobody knows.
        if shows && call.access.principal().is_some() && remains == Remains::Tombstone {
            return Err(runs::Error::NoThread(thread).into());
        }
        checked(remains)?;
    }
    for (thread, level) in stored.rights() {
        let access = call.access.at(level);
        checked(call.runs().authorize_repeat(&access, thread).await?)?;
    }
    Ok(())
}

/// Whether there is a run to join: its row, its events in this process, or what it left when it went with its thread.
async fn exists(call: &Call, run: Target) -> Result<bool, Error> {
    match call.runs().visible_row(&call.access, run).await {
        Ok(Some(_)) => Ok(true),
        Ok(None) | Err(runs::Error::NoThread(_)) => {
            let is_here = call.runs().publisher(run).is_some();
            Ok(is_here || call.runs().ended(&call.access, run).await?.is_some())
        }
        Err(error) => Err(error.into()),
    }
}

/// 409: the request was carried out, and its response is not there any more.
fn not_stored() -> Error {
    Error::conflict(
        "The request was carried out, but its response was too large to be stored, and what it was \
         made from is gone: read what it changed, or take a new key to carry it out again",
    )
    .with_code("answer_not_stored")
}

/// 409: the request was carried out on a thread that is gone, and another one has its id.
fn thread_replaced() -> Error {
    Error::conflict(
        "The request was carried out on a thread that was deleted since, and another thread has its id now: take a \
         new key to carry it out on that one",
    )
    .with_code("thread_replaced")
}

/// 409: the request was carried out, and there is no row of its run any more.
fn gone_with_thread() -> Error {
    Error::conflict(
        "The request was carried out, and its run is gone with its temporary thread: take a new key to \
         carry it out again",
    )
    .with_code("answer_not_stored")
}

/// A stream whose frames come all at once, later.
struct Later(Option<BoxFuture<'static, Bytes>>);

#[async_trait]
impl FrameSource for Later {
    async fn next(&mut self) -> Option<Bytes> {
        let bytes = self.0.as_mut()?.await;
        self.0 = None;
        Some(bytes)
    }
}

fn mark(response: &mut Response<Body>) {
    let yes = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, yes);
}
