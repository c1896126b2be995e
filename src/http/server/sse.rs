//! Server-sent events: the response that sends the frames of a stream.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::Frame,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    body::{Body, BrokenOff},
    call::Call,
};
use crate::stream::{FrameSource, Memory};

/// Called when the client is gone before the stream ended.
pub type OnDisconnect = Box<dyn FnOnce() + Send>;

/// Keeps proxies from buffering the stream.
pub const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// As many bytes are gathered into one chunk when more is ready at once. What is gathered is copied, and the copy stays in
/// memory while its client reads nothing; frames that come in larger pieces are shared by all readers.
const CHUNK: usize = 16 << 10;

/// When clients may come back to a stream that broke off, in milliseconds. Without the blank line
/// that would make it an event.
const RETRY: &[u8] = b"retry: 1000\r\n";

/// What a silent stream sends.
const BEAT: &[u8] = b": heartbeat\r\n\r\n";

/// Between the last bytes and the break.
const FLUSH: Duration = Duration::from_millis(100);

/// Runs the callback unless the stream ended first.
pub struct Departure(Option<OnDisconnect>);

impl Departure {
    pub fn new(callback: Option<OnDisconnect>) -> Self {
        Self(callback)
    }

    pub fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback();
        }
    }
}

/// The response that streams `source` until it ends.
///
/// Once the server cuts its connections, the body breaks off unfinished: to the official clients a body that ends
/// is a run that has ended, while they come back for the rest of one that broke off. `guard` lives as long as the stream does.
pub fn respond(
    call: &Call,
    mut source: Box<dyn FrameSource>,
    on_disconnect: Option<OnDisconnect>,
    guard: impl Send + 'static,
) -> Response<Body> {
    let heartbeat = call.shared.options.heartbeat;
    let (memory, cut) = (call.runs().stream_memory().clone(), call.shared.cut.clone());
    let departure = Departure::new(on_disconnect);
    source.paid_by(&call.payer);
    let memory = (memory, call.payer.clone());
    let body = body(source, departure, heartbeat, memory, cut, guard);
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    response
}

fn body(
    mut source: Box<dyn FrameSource>,
    mut departure: Departure,
    heartbeat: Duration,
    (memory, payer): (Arc<Memory>, Arc<str>),
    cut: CancellationToken,
    guard: impl Send + 'static,
) -> Body {
    let stream = async_stream::stream! {
        let _guard = guard;
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut taken = None;
        loop {
            let first = {
                // A beat does not begin it anew: it may read from the database for longer than a beat takes to come.
                let mut next = pin!(next_of(&mut taken, &mut source));
                loop {
                    tokio::select! {
                        biased;
                        frames = &mut next => break frames,
                        () = cut.cancelled() => {
                            departure.ended();
                            yield Ok(Frame::data(Bytes::from_static(RETRY)));
                            // What was written before must reach the connection before it breaks.
                            tokio::time::sleep(FLUSH).await;
                            yield Err(BrokenOff);
                            return;
                        }
                        _ = beats.tick() => yield Ok(Frame::data(Bytes::from_static(BEAT))),
                    }
                }
            };
            let Some(first) = first else {
                departure.ended();
                return;
            };
            let (chunk, left, more) = gather(&mut source, first);
            taken = left;
            if !more {
                departure.ended();
            }
            // The next one is wanted once the connection has taken this one.
            let unread = chunk.len() + taken.as_ref().map_or(0, Bytes::len);
            let Some(unread) = memory.in_flight(&payer, unread) else {
                // Its other streams are not read. It may come back, as to one that broke off.
                departure.ended();
                yield Ok(Frame::data(Bytes::from_static(RETRY)));
                // The head of the response may be among what must reach the connection before it breaks.
                tokio::time::sleep(FLUSH).await;
                yield Err(BrokenOff);
                return;
            };
            yield Ok(Frame::data(chunk));
            drop(unread);
            if !more {
                return;
            }
        }
    };
    StreamBody::new(stream).boxed_unsync()
}

/// What was taken from the source before, else what it has next.
async fn next_of(taken: &mut Option<Bytes>, source: &mut Box<dyn FrameSource>) -> Option<Bytes> {
    match taken.take() {
        Some(frames) => Some(frames),
        None => source.next().await,
    }
}

/// `first` with whatever else is ready at once and fits; what was ready and does not fit; and false when the source has
/// ended.
fn gather(source: &mut Box<dyn FrameSource>, first: Bytes) -> (Bytes, Option<Bytes>, bool) {
    let mut joined = BytesMut::new();
    let mut length = first.len();
    while length < CHUNK {
        match source.next().now_or_never() {
            None => break,
            Some(None) => return (join(first, joined), None, false),
            Some(Some(frames)) if length + frames.len() > CHUNK => {
                return (join(first, joined), Some(frames), true);
            }
            Some(Some(frames)) => {
                length += frames.len();
                if joined.is_empty() {
                    joined.reserve(length);
                    joined.extend_from_slice(&first);
                }
                joined.extend_from_slice(&frames);
            }
        }
    }
    (join(first, joined), None, true)
}

fn join(first: Bytes, joined: BytesMut) -> Bytes {
    if joined.is_empty() {
        first
    } else {
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use async_trait::async_trait;
    use tokio::sync::mpsc;

    use super::*;

    struct Channel(mpsc::UnboundedReceiver<Bytes>);

    #[async_trait]
    impl FrameSource for Channel {
        async fn next(&mut self) -> Option<Bytes> {
            self.0.recv().await
        }
    }

    /// One that reads its only frame for twelve seconds whenever it is asked.
    struct Slow(bool);

    #[async_trait]
    impl FrameSource for Slow {
        async fn next(&mut self) -> Option<Bytes> {
            tokio::time::sleep(Duration::from_secs(12)).await;
            std::mem::take(&mut self.0).then(|| Bytes::from("read"))
        }
    }

    struct Fixture {
        send: Option<mpsc::UnboundedSender<Bytes>>,
        body: Body,
        cut: CancellationToken,
        gone: Arc<AtomicBool>,
    }

    fn fixture() -> Fixture {
        let (send, receive) = mpsc::unbounded_channel();
        Fixture {
            send: Some(send),
            ..fixture_of(Box::new(Channel(receive)))
        }
    }

    fn fixture_of(source: Box<dyn FrameSource>) -> Fixture {
        let cut = CancellationToken::new();
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        let callback: OnDisconnect = Box::new(move || flag.store(true, Ordering::SeqCst));
        let departure = Departure::new(Some(callback));
        let (beat, memory) = (Duration::from_secs(5), (Memory::new(1 << 20), "ann".into()));
        let body = body(source, departure, beat, memory, cut.clone(), ());
        Fixture {
            send: None,
            body,
            cut,
            gone,
        }
    }

    async fn chunk(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_shows_every_five_seconds_that_it_lives() {
        let mut fixture = fixture();
        let begin = Instant::now();
        for beat in 1..=3 {
            let text = chunk(&mut fixture.body).await.unwrap();
            assert_eq!(text, ": heartbeat\r\n\r\n");
            assert_eq!(begin.elapsed().as_secs(), beat * 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_to_read_than_a_beat_comes_all_the_same() {
        let mut fixture = fixture_of(Box::new(Slow(true)));
        let begin = Instant::now();
        let mut found = vec![];
        for _ in 0..3 {
            let text = chunk(&mut fixture.body).await.unwrap();
            found.push((begin.elapsed().as_secs(), text));
        }
        let beat = |at| (at, ": heartbeat\r\n\r\n".to_owned());
        assert_eq!(found, [beat(5), beat(10), (12, "read".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_are_ready_together_share_a_chunk() {
        let mut fixture = fixture();
        let send = fixture.send.take().unwrap();
        for text in ["a", "b", "c"] {
            send.send(Bytes::from(text)).unwrap();
        }
        assert_eq!(chunk(&mut fixture.body).await.unwrap(), "abc");
        send.send(Bytes::from("d")).unwrap();
        drop(send);
        assert_eq!(chunk(&mut fixture.body).await.unwrap(), "d");
        assert_eq!(chunk(&mut fixture.body).await, None);
        drop(fixture.body);
        assert!(!fixture.gone.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_piece_is_no_copy_and_what_is_ready_before_it_is_a_chunk_of_its_own() {
        let mut fixture = fixture();
        let send = fixture.send.take().unwrap();
        let large = Bytes::from(vec![b'x'; CHUNK]);
        for frames in [Bytes::from("a"), Bytes::from("b"), large.clone()] {
            send.send(frames).unwrap();
        }
        drop(send);
        assert_eq!(chunk(&mut fixture.body).await.unwrap(), "ab");
        let frame = fixture.body.frame().await.unwrap().unwrap();
        assert_eq!(frame.data_ref().unwrap().as_ptr(), large.as_ptr());
        assert_eq!(chunk(&mut fixture.body).await, None);
        drop(fixture.body);
        assert!(!fixture.gone.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_sends_what_is_left_and_breaks_off_without_counting_as_a_lost_client() {
        let mut fixture = fixture();
        let send = fixture.send.take().unwrap();
        send.send(Bytes::from("last")).unwrap();
        fixture.cut.cancel();
        assert_eq!(chunk(&mut fixture.body).await.unwrap(), "last");
        assert_eq!(chunk(&mut fixture.body).await.unwrap(), "retry: 1000\r\n");
        assert!(fixture.body.frame().await.unwrap().is_err());
        drop(fixture.body);
        assert!(!fixture.gone.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_dropped_before_its_end_reports_the_lost_client() {
        let fixture = fixture();
        drop(fixture.body);
        assert!(fixture.gone.load(Ordering::SeqCst));
    }
}
