//! The stream of everything that happens on a thread: its runs and the edits of its state.

pub(super) mod entries;

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use self::entries::ThreadEntries;
use super::{Result, Service, request::ThreadMode};
use crate::{
    id::{CheckpointId, ThreadId},
    runs::request::Address,
    stream::{FrameSource, Position, SinceThread, Subject, ThreadFrame, Watched, write_frame},
    value::{Map, Value},
};

/// How long a stream of a thread is open that does not exist, or that its client may not read.
pub(super) const WAIT: Duration = Duration::from_secs(600);
/// Pauses between two checks whether the thread exists.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(8);

/// What a client may see of a thread.
enum Visible {
    Yes,
    /// There is no such thread yet.
    Missing,
    /// It is not the client's.
    No,
}

/// The stream of one watcher.
struct ThreadStream(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

#[async_trait]
impl FrameSource for ThreadStream {
    async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await
    }
}

impl Service {
    /// What happens on a thread, as far as it is of these modes, and what is ready when the client's
    /// access is withdrawn. It ends by itself only when its client fell too far behind.
    ///
    /// A thread need not exist yet: a client may watch before its first run creates it. The client's
    /// right is checked the moment the thread exists. Of a thread of somebody else nothing is
    /// shown, as if it did not exist.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn watch(
        &self,
        id: ThreadId,
        since: SinceThread,
        modes: Vec<ThreadMode>,
    ) -> Result<(
        Box<dyn FrameSource>,
        impl Future<Output = ()> + Send + use<>,
    )> {
        let service = self.clone();
        // From here on nothing is missed.
        let position = self.shared.parts.log.thread_position(id).await?;
        let mut events = self.entries_from(id, since, position);
        let visible = self.visible(id).await?;
        let (shown, access) = oneshot::channel();
        let frames = async_stream::stream! {
            if !service.wait_until_visible(id, visible, &events).await {
                drop(events);
                return;
            }
            // Whoever does not wait for it does not want it.
            let _ = shown.send(service.runs.watch_access(&service.access, id));
            loop {
                match events.next().await {
                    Watched::Frames(frames) => {
                        let bytes = encode(&frames, &modes);
                        if !bytes.is_empty() {
                            yield bytes;
                        }
                    }
                    Watched::Gap(after, last) => yield gap(after, last),
                    Watched::Lagged => {
                        yield cut_off();
                        return;
                    }
                }
            }
        };
        let withdrawn = async move {
            match access.await {
                Ok(Some(access)) => access.withdrawn().await,
                _ => std::future::pending().await,
            }
        };
        let frames = ThreadStream(Box::pin(frames));
        Ok((Box::new(frames), withdrawn))
    }

    /// What is stored of a thread from a position on, and then what happens there.
    pub(super) fn entries(&self, id: ThreadId, from: Position) -> ThreadEntries {
        self.entries_from(id, SinceThread::After(from), 0)
    }

    /// The same, when the log of the thread has reached a position.
    fn entries_from(&self, id: ThreadId, since: SinceThread, position: i64) -> ThreadEntries {
        let position = u64::try_from(position).unwrap_or(0);
        let mut frames = self.runs.watch_thread(id, position);
        if let Some(memory) = &self.memory {
            frames = frames.paid_by(memory.payer());
        }
        ThreadEntries::new(self, id, since, frames)
    }

    /// [`wait_until_visible`](Self::wait_until_visible), from the first look at the thread on.
    pub(super) async fn wait_for(&self, id: ThreadId, frames: &ThreadEntries) -> bool {
        match self.visible(id).await {
            Ok(visible) => self.wait_until_visible(id, visible, frames).await,
            Err(error) => {
                tracing::warn!(%error, thread = %id, "a thread could not be read");
                self.wait_until_visible(id, Visible::Missing, frames).await
            }
        }
    }

    /// Whether there is the thread, and the client may read it.
    pub(super) async fn is_visible(&self, id: ThreadId) -> bool {
        loop {
            match self.visible(id).await {
                Ok(visible) => return matches!(visible, Visible::Yes),
                Err(error) => {
                    tracing::warn!(%error, thread = %id, "a thread could not be read");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }

    /// Waits until there is the thread; false if it is not the client's, or does not come.
    async fn wait_until_visible(
        &self,
        id: ThreadId,
        mut visible: Visible,
        events: &ThreadEntries,
    ) -> bool {
        let until = Instant::now() + WAIT;
        let (mut pause, mut is_woken) = (FIRST_PAUSE, false);
        let mut changes = self.shared.hints.watch(id);
        loop {
            match visible {
                Visible::Yes => return true,
                Visible::No => {
                    sleep_until(until).await;
                    return false;
                }
                Visible::Missing => {}
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::select! {
                () = changes.wait(pause) => pause = LAST_PAUSE.min(pause * 2),
                () = events.ready(), if !is_woken => is_woken = true,
            }
            visible = self.visible(id).await.unwrap_or_else(|error| {
                tracing::warn!(%error, thread = %id, "a thread could not be read");
                Visible::Missing
            });
        }
    }

    async fn visible(&self, id: ThreadId) -> Result<Visible> {
        let mut reader = self.shared.parts.tree.reader().await?;
        let row = reader.thread_row(id).await?;
        let Some(row) = row.filter(|row| row.deleted_at.is_none()) else {
            return Ok(Visible::Missing);
        };
        let Some(principal) = self.access.principal() else {
            return Ok(Visible::Yes);
        };
        let level = reader.level(row.tree, principal.clone()).await?;
        Ok(match self.access.check(id, level) {
            Ok(()) => Visible::Yes,
            Err(_) => Visible::No,
        })
    }

    /// Shows an edit of a thread's state to those who watch the thread in this process.
    pub(super) async fn publish_edit(
        &self,
        id: ThreadId,
        ns: &std::sync::Arc<str>,
        made: CheckpointId,
    ) {
        let Some(feed) = self.runs.watched_feed(id) else {
            return;
        };
        let at = Address {
            checkpoint: Some(made),
            ns: ns.clone(),
            ..Address::default()
        };
        match self.state(id, &at, false).await {
            Ok(state) => {
                let data = Map::from([("state", state), ("thread_id", id.to_string().into())]);
                feed.push_edit(Value::map(data).to_json().as_bytes());
            }
            Err(error) => {
                tracing::warn!(%error, thread = %id, "an edit could not be shown to those who watch the thread");
            }
        }
    }
}

/// The frames of the modes, as they are sent.
fn encode(frames: &[ThreadFrame], modes: &[ThreadMode]) -> Bytes {
    let mut out = vec![];
    for frame in frames {
        let is_shown = modes.iter().any(|mode| match mode {
            ThreadMode::RunModes => !matches!(frame.subject, Subject::Edit),
            ThreadMode::Lifecycle => frame.is_lifecycle,
            ThreadMode::StateUpdate => matches!(frame.subject, Subject::Edit),
        });
        if is_shown {
            frame.write(&mut out);
        }
    }
    out.into()
}

/// An event for entries that are no longer there.
fn gap(after: Position, last: Position) -> Bytes {
    let mut out = vec![];
    let data = format!("{{\"after\":\"{after}\",\"last\":\"{last}\"}}");
    write_frame(&mut out, "gap", data.as_bytes(), None);
    out.into()
}

/// The last event for a client that fell too far behind.
fn cut_off() -> Bytes {
    let mut out = vec![];
    let data =
        b"{\"error\":\"SlowReader\",\"message\":\"The stream was read too slowly and has been cut \
                 off. Come back with the id of the last event.\"}";
    write_frame(&mut out, "error", data, None);
    out.into()
}
