//! The form in which a response is stored for its key: status, headers, and the body or the run
//! that the response takes as long as.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response, StatusCode,
    body::Body as _,
    header::{CACHE_CONTROL, CONTENT_LOCATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION},
};

use crate::{
    budget::Budget,
    checkpoint::codec,
    http::{
        page,
        runs::join::Replay,
        server::{Body, Error, body, sse},
        threads::MadeThread,
    },
    id::{RunId, ThreadId},
    idempotency::StoredResponse,
    runs::request::Target,
    tree::members::{Access, Level},
    value::{Map, Value},
};

/// Headers that are stored with a response.
const HEADERS: [HeaderName; 7] = [
    CONTENT_TYPE,
    CONTENT_LOCATION,
    LOCATION,
    CACHE_CONTROL,
    sse::BUFFERING,
    page::TOTAL,
    page::NEXT,
];
/// Bytes of a body that is retained whatever else its client has memory for.
const SMALL: usize = 64 << 10;
/// A field of responses whose key is as old as they are: earlier versions stored the time of the claim, before the request
/// made its thread.
const IS_DATED: &str = "dated";
/// A field instead of a body that was too large.
const TOO_LARGE: &str = "too_large";

/// A stored response: its headers, and what makes its body.
pub struct Stored {
    fields: Value,
}

/// What makes the body of a stored response.
pub enum StoredBody {
    /// These bytes.
    Whole(StatusCode, Bytes),
    /// A run, to be joined in this way.
    Run(Replay),
    /// It was too large to be stored; what it shows.
    TooLarge(Option<Shown>),
}

/// What a response shows that was too large to be stored.
#[derive(Clone, Copy)]
pub enum Shown {
    /// The row of a run.
    Run(RunId),
    /// A thread that the request made.
    Thread(ThreadId),
}

impl Stored {
    /// Reads a stored response.
    ///
    /// # Errors
    /// The row was written by something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let fields = codec::decode(codec::BINCODE, bytes);
        let fields = fields.map_err(|error| Error::internal(&error))?;
        Ok(Self { fields })
    }

    /// Threads that the response shows or the request changed, with the levels that this took.
    pub fn rights(&self) -> Vec<(ThreadId, Level)> {
        let rights = self.fields.get("rights").and_then(Value::as_list);
        let rights = rights.unwrap_or_default().iter().filter_map(|right| {
            let [thread, level] = right.as_list()? else {
                return None;
            };
            Some((
                thread.as_str()?.parse().ok()?,
                level.as_str()?.parse().ok()?,
            ))
        });
        rights.collect()
    }

    /// Whether the time of its key is the one when it was stored.
    pub fn is_dated(&self) -> bool {
        self.fields.get(IS_DATED).is_some()
    }

    /// The bytes of the body, once they are stored.
    pub fn bytes(&self) -> Option<Bytes> {
        let body = self.fields.get("body").and_then(Value::as_bytes);
        body.map(Bytes::copy_from_slice)
    }

    /// What makes the body.
    ///
    /// # Errors
    /// The row was written by something else.
    pub fn body(&self) -> Result<StoredBody, Error> {
        let text = |name: &str| self.fields.get(name).and_then(Value::as_str);
        if let (Some(join), Some(thread), Some(run)) = (text("join"), text("thread"), text("run")) {
            let (Ok(thread), Ok(run)) = (thread.parse(), run.parse()) else {
                return Err(Error::internal(&"a stored response names no run"));
            };
            let run = Target { thread, run };
            return Ok(StoredBody::Run(match join {
                "wait" => Replay::Wait(run),
                _ => Replay::Stream(run),
            }));
        }
        if self.fields.get(TOO_LARGE).is_some() {
            let run = text("run").and_then(|run| run.parse().ok());
            let thread = text("thread").and_then(|thread| thread.parse().ok());
            let thread = thread.map(Shown::Thread);
            return Ok(StoredBody::TooLarge(run.map(Shown::Run).or(thread)));
        }
        let status = self.fields.get("status").and_then(Value::as_u64);
        let status = status.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        match (status, self.bytes()) {
            (Some(status), Some(bytes)) => Ok(StoredBody::Whole(status, bytes)),
            _ => Err(Error::internal(&"a stored response cannot be read")),
        }
    }

    /// Puts the stored headers on a response.
    pub fn restore_headers(&self, response: &mut Response<Body>) {
        for name in HEADERS {
            let text = self.fields.get(name.as_str()).and_then(Value::as_str);
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                response.headers_mut().insert(name, value);
            }
        }
    }
}

/// The response, whose body may have been read, and the form to be stored. Of a body of more than
/// `limit` bytes, or of one that comes bit by bit and whose size nobody knows, that is stored which it
/// shows: `row`, the run whose row it is, or the thread that was made.
///
/// # Errors
/// The body broke off.
pub async fn encode(
    response: Response<Body>,
    access: &Access,
    limit: usize,
    row: Option<RunId>,
) -> Result<(Response<Body>, Value), Error> {
    let mut fields = head(&response, access);
    if let Some(replay) = response.extensions().get::<Replay>().copied() {
        let (join, run) = match replay {
            Replay::Stream(run) => ("stream", run),
            Replay::Wait(run) => ("wait", run),
        };
        fields.insert("join", join);
        fields.insert("thread", run.thread.to_string());
        fields.insert("run", run.run.to_string());
        return Ok((response, Value::map(fields)));
    }
    let (head, mut body) = response.into_parts();
    let mut small = None;
    if body.size_hint().exact().is_some() {
        let bytes = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(body::BrokenOff) => return Err(Error::unavailable("The server stops. Try again.")),
        };
        small = (bytes.len() <= limit).then(|| bytes.clone());
        body = body::full(bytes);
    }
    if let Some(bytes) = small {
        fields.insert("body", Value::from(bytes));
    } else {
        fields.insert(TOO_LARGE, true);
        if let Some(run) = row {
            fields.insert("run", run.to_string());
        }
        if let Some(MadeThread(thread)) = head.extensions.get() {
            fields.insert("thread", thread.to_string());
        }
    }
    Ok((Response::from_parts(head, body), Value::map(fields)))
}

/// Status and headers in the form in which they are stored, with what the client had to have for
/// them.
fn head(response: &Response<Body>, access: &Access) -> Map {
    let mut fields = Map::new();
    let mut rights = access.granted();
    if let Some(MadeThread(thread)) = response.extensions().get()
        && access.principal().is_none()
    {
        // Everything is allowed, and yet the response is one of this thread.
        rights.push((*thread, access.needed()));
    }
    let rights = rights
        .iter()
        .map(|(thread, level)| Value::list(vec![thread.to_string().into(), level.as_str().into()]));
    fields.insert("rights", Value::list(rights.collect()));
    fields.insert("status", i64::from(response.status().as_u16()));
    fields.insert(IS_DATED, true);
    for name in &HEADERS {
        if let Some(text) = response.headers().get(name).and_then(|v| v.to_str().ok()) {
            fields.insert(name.as_str(), text);
        }
    }
    fields
}

/// How much of a body is retained until it is stored: so many bytes, and no more than there is memory for.
pub struct Retained {
    /// The most bytes.
    pub limit: usize,
    /// Where their memory comes from.
    pub budget: Arc<Budget>,
    /// Whose share they take.
    pub payer: Arc<str>,
}

/// The same response; if it takes as long as its run, its body is stored whole at its end: the run
/// may be deleted when the request is repeated. What is longer than that, or more than there is memory for, is not
/// stored: who repeats the request joins the run.
pub fn store_at_end(
    response: Response<Body>,
    later: StoredResponse,
    access: &Access,
    retained: Retained,
) -> Response<Body> {
    let Some(replay) = response.extensions().get::<Replay>().copied() else {
        return response;
    };
    let mut fields = head(&response, access);
    response.map(|mut body| {
        let stream = async_stream::stream! {
            let Retained { limit, budget, payer } = retained;
            let mut memory = budget.reserve(&payer, 0).ok();
            let mut whole = Some(Vec::new());
            while let Some(frame) = body.frame().await {
                let frame = match frame {
                    Ok(frame) => frame,
                    // The rest comes when its client joins the run again.
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                };
                if let (Some(data), Some(bytes)) = (frame.data_ref(), &mut whole) {
                    bytes.extend_from_slice(data);
                }
                whole = whole.filter(|bytes| {
                    let reserved = memory.as_mut().map(|memory| memory.resize(bytes.capacity()));
                    // They stay for as long as a run takes: half of the share is left for what the client reads.
                    let has_room =
                        bytes.capacity() <= SMALL || 2 * budget.used_by(&payer) <= budget.share();
                    bytes.len() <= limit && has_room && matches!(reserved, Some(Ok(())))
                });
                if whole.is_none() {
                    memory = None;
                }
                yield Ok(frame);
            }
            let Some(whole) = whole else { return };
            let begin = match replay {
                // Line breaks came before the value while it was not there.
                Replay::Wait(_) => whole.iter().position(|byte| *byte != b'\n').unwrap_or(0),
                Replay::Stream(_) => 0,
            };
            fields.insert("body", Value::Bytes(whole[begin..].into()));
            if let Err(error) = later.replace(codec::encode(&Value::map(fields))).await {
                tracing::warn!(%error, "a response could not be stored for its idempotency key");
            }
        };
        StreamBody::new(stream).boxed_unsync()
    })
}
