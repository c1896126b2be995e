//! The response to a repeated request: the stored one, or a join of the run of the first request.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hyper::{
    Response, StatusCode,
    header::{HeaderName, HeaderValue},
};

use super::stored::{Stored, StoredBody};
use crate::{
    http::{
        render,
        runs::{
            join::{Replay, join_run, watch},
            location::put_run,
        },
        server::{
            body::{self, Body},
            call::Call,
            error::Error,
            sse,
        },
    },
    id::{RunId, ThreadId},
    idempotency::{Key, Outcome, Service},
    runs::{
        RunResult,
        request::{Join, Target},
    },
    stream::FrameSource,
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
    /// What the target of a POST creates, if it is a run.
    pub fn of(target: &str) -> Option<Self> {
        let path = target.split('?').next().unwrap_or_default();
        let ends = [
            ("/runs", Self::Row),
            ("/runs/stream", Self::Stream),
            ("/runs/wait", Self::Wait),
        ];
        let found = ends.into_iter().find(|(end, _)| path.ends_with(end));
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
    pub async fn response(self, call: &Call, stored: &[u8]) -> Result<Response<Body>, Error> {
        let stored = Stored::decode(stored)?;
        let mut response = match stored.body()? {
            StoredBody::Run(replay) => self.join(call, replay).await?,
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
            call.path.thread()?
        } else {
            ThreadId::of_run(run)
        };
        let run = Target { thread, run };
        let Some(row) = call.runs().find_run(run.thread, run.run).await? else {
            return Ok(None);
        };
        let replay = match creates {
            Creates::Stream => Replay::Stream(run),
            Creates::Wait => Replay::Wait(run),
            Creates::Row => {
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
        let run = match replay {
            Replay::Wait(run) => return join_run(call, run, false).await,
            Replay::Stream(run) => run,
        };
        let publisher = call.runs().publisher(run.run);
        if publisher.is_some_and(|publisher| publisher.resumable()) {
            let join = Join {
                last_event_id: Some("-".into()),
                ..Join::default()
            };
            return watch(call, run, join).await;
        }
        let slot = call.stream_slot()?;
        let result = call.runs().join(run).await?;
        let result = result.unwrap_or_else(RunResult::ready_not_found);
        let service = call.idempotency().clone();
        let frames = async move {
            let result = result.await;
            // The first request is about to have received all of it.
            for _ in 0..POLLS {
                match self.stored_bytes(&service).await {
                    Some(bytes) => return bytes,
                    None => tokio::time::sleep(PAUSE).await,
                }
            }
            result.to_frames(run.run, 1, &[])
        };
        let frames = Box::new(Later(Some(frames.boxed())));
        let heartbeat = call.shared.options.heartbeat;
        let drain = call.shared.drain.clone();
        Ok(sse::respond(frames, None, heartbeat, drain, slot))
    }

    /// The body that is stored by now.
    async fn stored_bytes(&self, service: &Service) -> Option<Bytes> {
        match service.begin(self.key.clone(), self.hash).await {
            Ok(Outcome::Replay(stored)) => Stored::decode(&stored).ok()?.bytes().cloned(),
            _ => None,
        }
    }
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
