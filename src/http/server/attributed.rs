//! Bodies that are still being made when the head of their response is there, made in the name of
//! the principal that asked for them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    Response,
    body::{Body as _, Frame, SizeHint},
};

use super::body::{Body, BrokenOff};
use crate::contention::shares::step_on_behalf_of;

/// A body whose frames are made in the name of a principal: what the rows of a list or the events of
/// a stream take of the database's connections is part of its share.
struct Attributed {
    body: Body,
    principal: Arc<str>,
}

/// The response, whose body is made in the name of the principal unless it is there as a whole.
pub fn attribute(response: Response<Body>, principal: Option<Arc<str>>) -> Response<Body> {
    match principal {
        Some(principal) if response.body().size_hint().exact().is_none() => {
            response.map(|body| Attributed { body, principal }.boxed_unsync())
        }
        _ => response,
    }
}

impl hyper::body::Body for Attributed {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Self { body, principal } = &mut *self;
        step_on_behalf_of(principal, || Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;
    use crate::{contention::shares::Shares, http::server::body};

    /// A body that takes one of what there are shares of before it has its only frame.
    fn taking(shares: &Shares) -> Response<Body> {
        let shares = shares.clone();
        let frames = stream::once(async move {
            let share = shares.wait(Duration::ZERO).await;
            let text = if share.is_ok() { "some" } else { "none" };
            Ok(Frame::data(Bytes::from_static(text.as_bytes())))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    async fn text(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn what_a_body_takes_is_part_of_the_share_of_who_asked_for_it() {
        let shares = Shares::of(2);
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let of =
            |principal: Option<&Arc<str>>| text(attribute(taking(&shares), principal.cloned()));
        let _held = shares.take(Some(&ann)).unwrap();
        assert_eq!(of(Some(&ann)).await, "none");
        assert_eq!(of(Some(&bob)).await, "some");
        assert_eq!(of(None).await, "some");
    }

    #[tokio::test]
    async fn a_whole_body_stays_one() {
        let response = attribute(Response::new(body::full("whole")), Some("ann".into()));
        assert_eq!(response.body().size_hint().exact(), Some(5));
        assert_eq!(text(response).await, "whole");
    }
}
