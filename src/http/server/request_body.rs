//! Bodies of requests: read within limits of size, time and memory, then parsed.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{HeaderMap, StatusCode, body::Body as _, header::CONTENT_LENGTH};
use tokio::time::Instant;

use super::{bodies::RequestBody, error::Error, json_size::JsonSize};
use crate::{
    budget::{Budget, Refusal, Reservation},
    value::{JsonError, Value},
};

/// What bounds the body of a request.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long it may take before it must have come at its slowest pace.
    pub grace: Duration,
    /// That pace, in bytes a second.
    pub pace: usize,
    /// Most values that it may have as JSON.
    pub values: usize,
    /// What its bytes and its values are reserved from.
    pub budget: Arc<Budget>,
    /// Whose share they are.
    pub payer: Arc<str>,
}

/// A body that was read, and the memory that it takes.
#[derive(Debug)]
pub struct Received {
    /// All of it.
    pub bytes: Bytes,
    reservation: Reservation,
}

/// A message that came on a connection that is no request.
///
/// # Errors
/// 503 when the bodies that are being read take too much memory.
pub fn received(bytes: &[u8], limits: &Limits) -> Result<Received, Error> {
    let reservation = limits.budget.reserve(&limits.payer, bytes.len());
    Ok(Received {
        reservation: reservation.map_err(no_memory)?,
        bytes: Bytes::copy_from_slice(bytes),
    })
}

/// A body of which nothing was read. When it is dropped so, what a short one has is read all the same:
/// hyper closes a connection with an unread body that has not come yet when the response is there, and
/// a client whose next request meets that end has to take it for a failure.
pub struct Unread(Option<RequestBody>);

/// Bytes of a body that is read although nobody wants it; the connection with a longer one is closed.
const SHORT: u64 = 64 << 10;
/// How long that may take.
const SHORT_TIME: Duration = Duration::from_secs(5);

impl Unread {
    pub fn new(body: RequestBody) -> Self {
        Self(Some(body))
    }

    /// The body, for whoever wants it otherwise.
    pub fn take(mut self) -> Option<RequestBody> {
        self.0.take()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let is_short = |body: &RequestBody| {
            let most = body.size_hint().upper();
            !body.is_end_stream() && most.is_some_and(|most| most <= SHORT)
        };
        let Some(mut body) = self.0.take().filter(is_short) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(tokio::time::timeout(SHORT_TIME, async move {
            while let Some(Ok(_)) = body.frame().await {}
        }));
    }
}

/// Where the body of a request is.
pub enum Source {
    /// Still to be read.
    Coming(Unread),
    /// Read already.
    Read(Received),
}

impl Source {
    /// Whether nothing of it is to come.
    pub fn is_there(&self) -> bool {
        match self {
            Self::Coming(unread) => unread.0.is_none(),
            Self::Read(_) => true,
        }
    }

    /// Reads all of it, at most `limit` bytes.
    ///
    /// # Errors
    /// See [`read`].
    pub async fn read(
        self,
        headers: &HeaderMap,
        limit: usize,
        limits: &Limits,
    ) -> Result<Received, Error> {
        match self {
            Self::Coming(mut unread) => match unread.0.take() {
                Some(body) => read(headers, body, limit, limits).await,
                None => received(&[], limits),
            },
            Self::Read(body) if body.bytes.len() > limit => Err(too_large(limit)),
            Self::Read(body) => Ok(body),
        }
    }
}

fn too_large(limit: usize) -> Error {
    Error::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("The request body is larger than the limit of {limit} bytes"),
    )
}

/// The error for a body that finds no memory.
fn no_memory(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Exhausted => {
            Error::unavailable("Too many large requests are being read. Try again later.")
        }
        Refusal::TooLarge => Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The request body takes more memory than this server has for one client: the operator sets \
             BACKSTITCH_MEMORY_BUDGET and BACKSTITCH_SHARE",
        ),
    }
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// 413 as soon as the size is known to be too large, 408 when it comes too slowly, 503 when the
/// bodies that are being read take too much memory, 400 when the connection breaks.
async fn read(
    headers: &HeaderMap,
    mut body: RequestBody,
    limit: usize,
    limits: &Limits,
) -> Result<Received, Error> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let announced = usize::try_from(announced.unwrap_or(0)).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let reservation = limits.budget.reserve(&limits.payer, 0);
    let mut reservation = reservation.map_err(no_memory)?;
    let begin = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while !body.is_end_stream() {
        let read = first.len() + rest.len();
        let time = Duration::from_secs_f64(read as f64 / limits.pace as f64);
        let deadline = begin + limits.grace + time;
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Error::bad_request("The request body broke off")),
            Err(_) => {
                let detail = "The request body came too slowly";
                return Err(Error::new(StatusCode::REQUEST_TIMEOUT, detail));
            }
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if read + data.len() > limit {
            return Err(too_large(limit));
        }
        // Most bodies come in one frame, which is then not copied.
        if read == 0 {
            reservation.resize(data.len()).map_err(no_memory)?;
            first = data;
            continue;
        }
        // The buffer has the size that was announced at once; else it grows by doubling. The parts of many bodies that
        // grow beside each other would leave memory that the allocator cannot use for larger parts.
        let read = read + data.len();
        let grown = if read <= announced {
            announced
        } else {
            read.next_power_of_two()
        };
        reservation
            .resize(rest.capacity().max(grown))
            .map_err(no_memory)?;
        if rest.is_empty() {
            rest.reserve(grown);
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    let bytes = if rest.is_empty() {
        first
    } else {
        rest.freeze()
    };
    Ok(Received { bytes, reservation })
}

/// A body of more bytes is parsed beside the threads that serve requests: it takes milliseconds.
const LARGE: usize = 256 << 10;

/// Parses a JSON body; its content type does not matter. Its memory is reserved until the
/// reservation is dropped.
///
/// # Errors
/// 422; 413 when it has too many values, 503 when there is no memory for them now.
pub async fn parse(body: Received, limits: Limits) -> Result<(Value, Reservation), Error> {
    if body.bytes.len() <= LARGE {
        return parse_here(body, &limits);
    }
    let parsed = tokio::task::spawn_blocking(move || parse_here(body, &limits));
    parsed.await.map_err(|error| Error::internal(&error))?
}

fn parse_here(body: Received, limits: &Limits) -> Result<(Value, Reservation), Error> {
    let Received {
        bytes,
        mut reservation,
    } = body;
    let size = JsonSize::of(&bytes);
    if size.values > limits.values {
        let most = limits.values;
        return Err(Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "JSON in the request body has more values than the limit of {most} (BACKSTITCH_BODY_VALUES)"
            ),
        ));
    }
    reservation
        .resize(reservation.bytes() + size.bytes)
        .map_err(no_memory)?;
    let value = parse_json(&bytes)?;
    drop(bytes);
    reservation.resize(size.bytes).map_err(no_memory)?;
    Ok((value, reservation))
}

fn parse_json(bytes: &[u8]) -> Result<Value, Error> {
    Value::from_json_slice(bytes).map_err(|error| match error {
        JsonError::IntegerTooLarge { .. } => Error::invalid(sentence(&error.to_string())),
        JsonError::Syntax { ref message, .. } if message.contains("recursion limit") => {
            Error::invalid("JSON in the request body is nested too deeply: at most 127 levels")
        }
        JsonError::Syntax { .. } => Error::invalid("Invalid JSON in request body"),
    })
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn others_go_on_while_a_large_body_is_parsed() {
        let turns = Arc::new(AtomicU64::new(0));
        let other = tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let limits = Limits {
            grace: Duration::from_secs(1),
            pace: 64_000,
            values: 10_000_000,
            budget: Budget::new(1 << 30),
            payer: "p".into(),
        };
        let text = format!("[{}1]", "1,".repeat(2 << 20));
        let body = received(text.as_bytes(), &limits).unwrap();
        let (value, _memory) = parse(body, limits).await.unwrap();
        assert_eq!(value.as_list().unwrap().len(), (2 << 20) + 1);
        // This runtime has one thread: parsing there would have left no turn to the other.
        assert!(turns.load(Ordering::Relaxed) > 1);
        other.abort();
    }

    #[test]
    fn json_that_cannot_be_kept_is_refused_with_the_reason() {
        let detail = |text: &[u8]| {
            let error = parse_json(text).unwrap_err();
            assert_eq!(error.status, 422);
            error.detail.into_owned()
        };
        assert_eq!(detail(b""), "Invalid JSON in request body");
        assert_eq!(detail(b"{not json"), "Invalid JSON in request body");
        assert_eq!(detail(b"NaN"), "Invalid JSON in request body");
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        assert!(detail(&deep).contains("nested too deeply"));
        assert!(detail(b"{\"a\": 18446744073709551616}").contains("does not fit 64 bits"));
        assert_eq!(parse_json(b" {\"a\":1.0}").unwrap()["a"], Value::Float(1.0));
    }

    /// Reads a body of 10 kB, of which 1,000 bytes come each second.
    async fn read_slow(grace: Duration, pace: usize) -> Result<Received, Error> {
        let frames = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let frame = hyper::body::Frame::data(Bytes::from(vec![0; 1000]));
            Some((Ok::<_, std::convert::Infallible>(frame), ()))
        });
        let frames = futures::StreamExt::take(frames, 10);
        let body = RequestBody::new(http_body_util::StreamBody::new(frames));
        let limits = Limits {
            grace,
            pace,
            values: 10,
            budget: Budget::new(1 << 20),
            payer: "ann".into(),
        };
        read(&HeaderMap::new(), body, 1 << 20, &limits).await
    }

    /// What is reserved when the second of five parts of 1,000 bytes has been read, and what all of it.
    async fn reserved(announced: Option<usize>) -> (usize, usize) {
        let (send, parts) = futures::channel::mpsc::unbounded();
        let part = || {
            let frame = hyper::body::Frame::data(Bytes::from(vec![0; 1000]));
            let sent = send.unbounded_send(Ok::<_, std::convert::Infallible>(frame));
            sent.unwrap();
        };
        let limits = Limits {
            grace: Duration::from_secs(1),
            pace: 64_000,
            values: 10,
            budget: Budget::new(1 << 20),
            payer: "ann".into(),
        };
        let length = announced.map(|length| (CONTENT_LENGTH, length.to_string()));
        let length = length.map(|(name, length)| (name, length.parse().unwrap()));
        let headers: HeaderMap = length.into_iter().collect();
        let body = RequestBody::new(http_body_util::StreamBody::new(parts));
        let mut reading = std::pin::pin!(read(&headers, body, 1 << 20, &limits));
        part();
        assert!(futures::poll!(&mut reading).is_pending());
        assert_eq!(limits.budget.reserved(), 1000, "one part is not copied");
        part();
        assert!(futures::poll!(&mut reading).is_pending());
        let second = limits.budget.reserved();
        (0..3).for_each(|_| part());
        drop(send);
        let received = reading.await.unwrap();
        assert_eq!(received.bytes.len(), 5000);
        (second, received.reservation.bytes())
    }

    #[tokio::test]
    async fn a_body_has_its_announced_size_at_once_and_otherwise_what_its_buffer_grows_to() {
        assert_eq!(reserved(Some(5000)).await, (5000, 5000));
        assert_eq!(reserved(None).await, (2048, 8192));
        // No client announces less than it sends over HTTP; what is beyond grows all the same.
        assert_eq!(reserved(Some(3000)).await, (3000, 8192));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_grace_and_then_must_keep_its_pace() {
        let (second, moment) = (Duration::from_secs(1), Duration::from_millis(2));
        let status = |read: Result<Received, Error>| read.map(|_| ()).map_err(|error| error.status);
        assert_eq!(status(read_slow(second + moment, 1000).await), Ok(()));
        assert_eq!(status(read_slow(second + moment, 999).await), Ok(()));
        let late = Err(StatusCode::REQUEST_TIMEOUT);
        assert_eq!(status(read_slow(second + moment, 1001).await), late);
        assert_eq!(status(read_slow(second - moment, 1000).await), late);
    }
}
