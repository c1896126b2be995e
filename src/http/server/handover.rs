//! Bodies that another server of the process writes: what they take of this one is free in time,
//! whatever their clients do.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    bodies::ResponseBody,
    body::BrokenOff,
    progress::{Guarded, Progress},
};

/// Bodies of no more bytes are handed over whole.
const SMALL: u64 = 64 << 10;

enum Step {
    Frame(Result<Frame<Bytes>, BrokenOff>),
    End,
}

/// A body that comes from a task.
struct HandedOver {
    steps: mpsc::Receiver<Step>,
    size: Option<u64>,
    has_ended: bool,
}

/// The body, which breaks off when its client takes nothing of it for `stall`. Only the other server can
/// close the connection, but memory and slots that the response has of this one are free then. `open` is
/// dropped at its end.
pub fn in_time(
    mut body: Guarded,
    progress: Arc<Progress>,
    stall: Duration,
    open: TaskTrackerToken,
) -> ResponseBody {
    let size = body.size_hint().exact();
    if size.is_some_and(|size| size <= SMALL) {
        let body = body.map_frame(move |frame| {
            let _ = &open;
            frame
        });
        return ResponseBody::of(body.boxed_unsync());
    }
    let (send, steps) = mpsc::channel(1);
    tokio::spawn(async move {
        let _open = open;
        let passing = async {
            // A frame is asked for once the one before was taken.
            while let Ok(free) = send.reserve().await {
                match body.frame().await {
                    Some(frame) => free.send(Step::Frame(frame)),
                    None => return free.send(Step::End),
                }
            }
        };
        tokio::select! {
            () = passing => {}
            () = send.closed() => {}
            () = progress.overdue(stall) => {}
        }
    });
    let handed_over = HandedOver {
        steps,
        size,
        has_ended: false,
    };
    ResponseBody::of(handed_over.boxed_unsync())
}

impl HttpBody for HandedOver {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let step = ready!(self.steps.poll_recv(cx));
        if let Some(Step::Frame(Ok(frame))) = step {
            return Poll::Ready(Some(Ok(frame)));
        }
        self.has_ended = true;
        Poll::Ready(match step {
            Some(Step::End) => None,
            _ => Some(Err(BrokenOff)),
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.size
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::http::server::{body, connection::Activity, progress::Slowest};

    fn handed_over(bytes: usize, pace: usize) -> (Pin<Box<ResponseBody>>, Arc<Activity>) {
        handed_over_body(body::full(vec![b'x'; bytes]), pace)
    }

    fn handed_over_body(whole: body::Body, pace: usize) -> (Pin<Box<ResponseBody>>, Arc<Activity>) {
        let activity = Activity::new();
        let stall = Duration::from_secs(30);
        let progress = activity.progress().clone();
        let open = TaskTracker::new().token();
        let slowest = Slowest { stall, pace };
        let guarded = Guarded::new(whole, activity.enter(false), progress.clone(), slowest);
        (Box::pin(in_time(guarded, progress, stall, open)), activity)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_arrives_as_it_was_and_keeps_its_size() {
        let (body, _activity) = handed_over(200_000, 64_000);
        assert_eq!(body.size_hint().exact(), Some(200_000));
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 200_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_which_nothing_is_taken_breaks_off() {
        let (mut body, _activity) = handed_over(200_000, 64_000);
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(31)).await;
        let mut frames = vec![];
        while let Some(frame) = body.frame().await {
            frames.push(frame.is_ok());
        }
        assert_eq!(
            frames,
            [true, false],
            "the one that was ready, and the break"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_known_size_that_is_taken_below_its_pace_breaks_off() {
        // At these paces it takes 10 s and 100 s, besides the 30 s of a stall; at that of its client 800 s.
        for (pace, seconds) in [(64_000, 40..100), (6_400, 130..190)] {
            let (mut body, _activity) = handed_over(640_000, pace);
            let begin = Instant::now();
            while let Some(Ok(_)) = body.frame().await {
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            let took = begin.elapsed().as_secs();
            assert!(seconds.contains(&took), "{pace}: {took} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_part_of_a_list_is_taken_at_the_pace_and_small_ones_as_slowly_as_they_come() {
        let parts = |bytes: usize, count: usize| {
            let part = move |_| Ok(hyper::body::Frame::data(Bytes::from(vec![b'x'; bytes])));
            let parts = futures::stream::iter((0..count).map(part));
            http_body_util::StreamBody::new(parts).boxed_unsync()
        };
        // A part of 640 kB has 40 s, and at 16 KiB in 20 s it takes 800.
        let (mut large, _activity) = handed_over_body(parts(640_000, 2), 64_000);
        let begin = Instant::now();
        let mut is_whole = true;
        while let Some(frame) = large.frame().await {
            is_whole &= frame.is_ok();
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        let took = begin.elapsed().as_secs();
        assert!(!is_whole && (40..130).contains(&took), "{took} s");
        let (mut small, _activity) = handed_over_body(parts(16_000, 40), 64_000);
        while let Some(frame) = small.frame().await {
            frame.unwrap();
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    }
}
