//! Where the frames of a stream come from, whoever produces them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::Subscription;

/// Where the frames of a stream come from.
///
/// `next` must be safe to drop before it is ready: nothing may get lost by that.
#[async_trait]
pub trait FrameSource: Send + 'static {
    /// The next whole frame or frames, as [`write_frame`](super::write_frame) makes them; `None`
    /// at the end.
    async fn next(&mut self) -> Option<Bytes>;

    /// Names the client whose share of the memory has what was not read of a run's stream.
    fn paid_by(&mut self, _payer: &Arc<str>) {}
}

#[async_trait]
impl FrameSource for Subscription {
    async fn next(&mut self) -> Option<Bytes> {
        Subscription::next(self).await
    }

    fn paid_by(&mut self, payer: &Arc<str>) {
        Subscription::paid_by(self, payer);
    }
}

/// Frames that are all there from the start.
#[async_trait]
impl FrameSource for Option<Bytes> {
    async fn next(&mut self) -> Option<Bytes> {
        self.take()
    }
}
