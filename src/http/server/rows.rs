//! Lists as JSON arrays that are written row by row while the client reads. A short one is there as
//! a whole, with its length; a long one waits with its next row until the last ones were taken.

use std::fmt;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    header::{CONTENT_TYPE, HeaderValue},
};

use super::{
    body::{self, Body, BrokenOff},
    call::Call,
    error::Error,
};
use crate::{
    budget::{Refusal, Reservation},
    contention::unlimited::without_limit,
    runs::{Listing, listing::IN_MEMORY},
    value::Value,
};

/// Rows are gathered until they have as many bytes.
const CHUNK: usize = 64 << 10;

/// Checks that the client may see what was read.
trait Confirm: Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync + 'static {}

impl<F: Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync + 'static> Confirm for F {}

/// The response with an array of rows. The memory for it is reserved until its last byte was taken.
/// `large` names the fields that a request can leave out with `select`.
///
/// # Errors
/// 413 when one row alone is too large, 503 when too many lists are being read; or a row failed
/// before the head of the response was there. Later they wait for their turns as long as it takes; one that fails
/// breaks the body off, so that no client takes it for a shorter list.
pub async fn respond<E>(
    call: &Call,
    rows: Listing<Value, E>,
    large: Option<&str>,
) -> Result<Response<Body>, Error>
where
    Error: From<E>,
    E: fmt::Display + Send + 'static,
{
    let memory = reserve(call, rows.largest, rows.at_once, large)?;
    let threads = call.threads();
    let confirm = move || {
        let threads = threads.clone();
        async move { threads.confirm().await.map_err(refusal) }.boxed()
    };
    array(rows.items, confirm, memory).await
}

/// Why a list breaks off in the middle.
fn refusal(error: crate::threads::Error) -> Error {
    error.into()
}

fn reserve(
    call: &Call,
    largest: u64,
    at_once: u64,
    large: Option<&str>,
) -> Result<Reservation, Error> {
    let budget = &call.shared.responses;
    let bytes =
        |weight: u64| usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
    let refusal = match budget.reserve(&call.payer, bytes(largest.max(at_once))) {
        Ok(memory) => return Ok(memory),
        // What was read together can be read less together, but not one alone.
        Err(Refusal::TooLarge) if bytes(largest) <= budget.share() => {
            budget.reserve(&call.payer, budget.share())
        }
        Err(refusal) => Err(refusal),
    };
    refusal.map_err(|refusal| match refusal {
        Refusal::Exhausted => Error::unavailable("Too many lists are being read. Try again later."),
        Refusal::TooLarge => {
            let most = budget.share() as u64 / IN_MEMORY;
            let hint = large.map_or_else(String::new, |fields| {
                format!(", or leave out {fields} with `select`")
            });
            let detail = format!(
                "One item of the list counts as {largest} bytes (those of many small values count several times), more than \
                 the limit of {most}: raise BACKSTITCH_MEMORY_BUDGET or BACKSTITCH_SHARE{hint}"
            );
            Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
    })
}

/// `confirm` is called before rows are shown that were read after the head of the response.
async fn array<E>(
    rows: BoxStream<'static, Result<Value, E>>,
    confirm: impl Confirm,
    guard: impl Send + 'static,
) -> Result<Response<Body>, Error>
where
    Error: From<E>,
    E: fmt::Display + Send + 'static,
{
    let mut array = Array { rows, any: false };
    let mut first = vec![b'['];
    let body = if array.gather(&mut first).await? {
        StreamBody::new(rest(array, first, confirm, guard)).boxed_unsync()
    } else {
        body::full(first)
    };
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn rest<E>(
    mut array: Array<E>,
    first: Vec<u8>,
    confirm: impl Confirm,
    guard: impl Send + 'static,
) -> impl Stream<Item = Result<Frame<Bytes>, BrokenOff>> + Send
where
    Error: From<E>,
    E: fmt::Display + Send + 'static,
{
    async_stream::try_stream! {
        let _guard = guard;
        yield Frame::data(Bytes::from(first));
        loop {
            let mut chunk = vec![];
            let read = async {
                let more = array.gather(&mut chunk).await.map_err(broken_off)?;
                confirm().await.map_err(|error| {
                    tracing::info!(error = %error.detail, "a list breaks off");
                    BrokenOff
                })?;
                Ok::<_, BrokenOff>(more)
            };
            // What has begun goes on as long as its client is there.
            let more = without_limit(read).await?;
            yield Frame::data(Bytes::from(chunk));
            if !more {
                return;
            }
        }
    }
}

/// Logs why a list ends in the middle: the storage failed, since it waits for all else.
fn broken_off(error: impl fmt::Display) -> BrokenOff {
    tracing::error!(%error, "a list breaks off");
    BrokenOff
}

/// The rows that are not written yet.
struct Array<E> {
    rows: BoxStream<'static, Result<Value, E>>,
    /// A row was written.
    any: bool,
}

impl<E> Array<E> {
    /// Appends rows until a chunk is full, and the end of the array when there are no more; false
    /// after that.
    async fn gather(&mut self, chunk: &mut Vec<u8>) -> Result<bool, E> {
        while chunk.len() < CHUNK {
            let Some(row) = self.rows.next().await else {
                chunk.push(b']');
                return Ok(false);
            };
            let row = row?;
            if std::mem::replace(&mut self.any, true) {
                chunk.push(b',');
            }
            row.write_json(chunk);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use futures::stream;
    use hyper::body::Body as _;

    use super::*;
    use crate::{
        checkpoint,
        contention::shares::{Shares, on_behalf_of},
        http::server::attributed::attribute,
        value,
    };

    fn failure() -> Error {
        Error::unavailable("no more")
    }

    fn allowed() -> BoxFuture<'static, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }

    fn rows(
        count: usize,
        size: usize,
        made: &Arc<AtomicUsize>,
    ) -> BoxStream<'static, Result<Value, Error>> {
        let made = made.clone();
        let row = move |at: usize| {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(value!({"at": at as i64, "text": "x".repeat(size)}))
        };
        stream::iter((0..count).map(row)).boxed()
    }

    async fn text(response: Response<Body>) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn short_lists_are_there_as_a_whole() {
        let made = Arc::default();
        for (count, expected) in [
            (0, "[]"),
            (1, r#"[{"at":0,"text":""}]"#),
            (2, r#"[{"at":0,"text":""},{"at":1,"text":""}]"#),
        ] {
            let response = array(rows(count, 0, &made), allowed, ()).await.unwrap();
            let length = response.body().size_hint().exact();
            assert_eq!(length, Some(expected.len() as u64));
            assert_eq!(text(response).await, expected);
        }
    }

    #[tokio::test]
    async fn long_lists_are_complete_and_wait_for_their_reader() {
        let made = Arc::default();
        let mut response = array(rows(50, 40_000, &made), allowed, ()).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        assert!(made.load(Ordering::SeqCst) <= 4, "{made:?}");

        let response = array(rows(50, 40_000, &made), allowed, ()).await.unwrap();
        let whole: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        let ats = whole.as_array().unwrap().iter().map(|row| &row["at"]);
        assert!(ats.eq(&(0..50).map(serde_json::Value::from).collect::<Vec<_>>()));
    }

    #[tokio::test]
    async fn a_late_failure_breaks_the_body_off_and_an_early_one_is_an_error() {
        let made = Arc::default();
        let failing = |count| rows(count, 40_000, &made).chain(stream::iter([Err(failure())]));
        let early = array(failing(0).boxed(), allowed, ()).await;
        assert_eq!(early.unwrap_err(), failure());
        let late = array(failing(10).boxed(), allowed, ()).await.unwrap();
        late.into_body().collect().await.unwrap_err();
    }

    /// A row that fills the head of a response, and one that is read in the share of a principal.
    fn rows_in_share(shares: &Shares) -> BoxStream<'static, Result<Value, Error>> {
        let shares = shares.clone();
        let second = async move {
            let share = shares.wait(Duration::from_secs(10)).await;
            share.map_err(checkpoint::Error::from)?;
            Ok(value!("second"))
        };
        rows(1, CHUNK, &Arc::default())
            .chain(stream::once(second))
            .boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_has_begun_waits_for_the_share_of_its_principal_as_long_as_it_takes() {
        let (shares, ann): (_, Arc<str>) = (Shares::of(1), "ann".into());
        let held = shares.take(Some(&ann)).unwrap();
        // One that has not is refused.
        let late = array(rows_in_share(&shares).skip(1).boxed(), allowed, ());
        let refused = on_behalf_of(Some(ann.clone()), late).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let begun = array(rows_in_share(&shares), allowed, ()).await.unwrap();
        let list = tokio::spawn(text(attribute(begun, Some(ann))));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!list.is_finished());
        drop(held);
        assert!(list.await.unwrap().ends_with(r#","second"]"#));
    }

    #[tokio::test]
    async fn rows_read_after_access_was_withdrawn_are_not_shown() {
        let (made, checks) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let withdrawn = {
            let checks = checks.clone();
            move || {
                let is_allowed = checks.fetch_add(1, Ordering::SeqCst) < 2;
                async move { is_allowed.then_some(()).ok_or_else(Error::not_found) }.boxed()
            }
        };
        let response = array(rows(50, 40_000, &made), withdrawn, ()).await.unwrap();
        let mut body = response.into_body();
        for _ in 0..3 {
            body.frame().await.unwrap().unwrap();
        }
        body.frame().await.unwrap().unwrap_err();
    }
}
