//! The program behind the server: knows one thread and one run, and keeps what it was asked.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{NOWHERE, RUN, THREAD};
use crate::{
    http::{Api, Error, OnDisconnect, Outcome, Streaming, Waiting, Xray, assistant_request},
    id::{AssistantId, BranchId, RunId, ThreadId, TreeId},
    runs::{
        self, Strategy,
        request::{
            self, Address, Assistant, CancelAction, Target, Watch,
            threads::{Create, Edit, Filter, History, Search, View},
        },
    },
    stream::{FrameSource, write_frame},
    time::Timestamp,
    tree, value,
    value::{Map, Value},
};

const TIME: Timestamp = Timestamp(1_795_211_784_693_979);

#[derive(Default)]
pub struct Fake {
    /// Frames of streams that stay open, and who sends them.
    pub open: Mutex<VecDeque<mpsc::UnboundedReceiver<Bytes>>>,
    /// Streams whose client left.
    pub left: std::sync::Arc<AtomicUsize>,
    /// How long creating a thread takes.
    pub delay: Mutex<Duration>,
    /// Threads created.
    pub created: AtomicUsize,
    /// What was asked last, as debug text.
    pub asked: Mutex<String>,
}

impl Fake {
    fn note(&self, what: impl std::fmt::Debug) {
        *self.asked.lock() = format!("{what:?}");
    }

    fn departure(&self) -> Option<OnDisconnect> {
        let left = self.left.clone();
        Some(Box::new(move || {
            left.fetch_add(1, Ordering::SeqCst);
        }))
    }

    fn frames(&self) -> Box<dyn FrameSource> {
        if let Some(open) = self.open.lock().pop_front() {
            return Box::new(Frames(open));
        }
        let (send, receive) = mpsc::unbounded_channel();
        for (event, data) in [
            ("metadata", r#"{"attempt":1}"#),
            ("values", r#"{"count":1}"#),
        ] {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, event, data.as_bytes(), None);
            send.send(bytes.into()).unwrap();
        }
        Box::new(Frames(receive))
    }
}

struct Frames(mpsc::UnboundedReceiver<Bytes>);

#[async_trait]
impl FrameSource for Frames {
    async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

fn view(id: ThreadId, metadata: Map) -> View {
    View {
        row: tree::Thread {
            id,
            tree: TreeId::of_root(id),
            metadata,
            config: Map::new(),
            created_at: TIME,
            updated_at: TIME,
            state_updated_at: TIME,
            active_branch: BranchId(id.0),
            head: None,
            head_depth: -1,
            epoch: 0,
            outcome: tree::Outcome::Idle,
            error: None,
            busy: false,
        },
        values: Value::Null,
        interrupts: Map::new(),
    }
}

fn known(id: ThreadId) -> Result<ThreadId, Error> {
    if id.to_string() == NOWHERE {
        return Err(Error::no_thread(id));
    }
    Ok(id)
}

fn target() -> Target {
    Target {
        thread: THREAD.parse().unwrap(),
        run: RUN.parse().unwrap(),
    }
}

fn row(thread: ThreadId, id: RunId) -> runs::Run {
    runs::Run {
        id,
        tree: TreeId::of_root(thread),
        thread,
        branch: None,
        assistant: AssistantId::of_graph("counter"),
        status: runs::Status::Pending,
        metadata: Map::new(),
        kwargs: value!({"input": {"count": 1}}),
        address: None,
        base: None,
        strategy: Strategy::Enqueue,
        attempt: 1,
        temporary: false,
        error: None,
        last_checkpoint: None,
        run_at: TIME,
        created_at: TIME,
        updated_at: TIME,
    }
}

impl crate::http::api::branches::Branches for Fake {}
impl crate::http::api::messages::Messages for Fake {}
impl crate::http::api::forks::Forks for Fake {}
impl crate::http::api::events::Events for Fake {}

#[async_trait]
impl Api for Fake {
    async fn check(&self) -> Result<(), Error> {
        panic!("the fake has no database");
    }

    async fn create_thread(&self, create: Create) -> Result<View, Error> {
        let delay = *self.delay.lock();
        tokio::time::sleep(delay).await;
        self.created.fetch_add(1, Ordering::SeqCst);
        self.note(&create);
        let id = create.id.unwrap_or(THREAD.parse().unwrap());
        Ok(view(id, create.metadata))
    }
    async fn thread(&self, id: ThreadId) -> Result<View, Error> {
        Ok(view(known(id)?, Map::new()))
    }
    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<View, Error> {
        Ok(view(known(id)?, metadata))
    }
    async fn delete_thread(&self, id: ThreadId) -> Result<(), Error> {
        known(id).map(|_| ())
    }
    async fn search_threads(&self, search: Search) -> Result<Vec<View>, Error> {
        self.note(&search);
        let left = 5_usize.saturating_sub(search.offset);
        let one = || view(THREAD.parse().unwrap(), Map::from([("n", value!([1, 2]))]));
        Ok((0..left.min(search.limit)).map(|_| one()).collect())
    }
    async fn count_threads(&self, _filter: Filter) -> Result<u64, Error> {
        Ok(91)
    }

    async fn watch_thread(
        &self,
        _id: ThreadId,
        watch: Watch,
    ) -> Result<Box<dyn FrameSource>, Error> {
        self.note(watch);
        Ok(self.frames())
    }

    async fn state(&self, id: ThreadId, at: Address, subgraphs: bool) -> Result<Value, Error> {
        known(id)?;
        self.note((at, subgraphs));
        Ok(value!({"values": {}, "next": []}))
    }
    async fn history(&self, id: ThreadId, page: History) -> Result<Vec<Value>, Error> {
        known(id)?;
        self.note(&page);
        Ok((0..page.limit).map(|n| value!({"n": n})).collect())
    }
    async fn edit_state(&self, id: ThreadId, edit: Edit) -> Result<Value, Error> {
        known(id)?;
        self.note(&edit);
        Ok(value!({"checkpoint_id": "c"}))
    }

    async fn create_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<runs::Run, Error> {
        self.note(&run);
        if thread.is_some_and(|id| known(id).is_err()) {
            return Err(Error::no_thread_or_assistant());
        }
        if run.assistant == Assistant::Graph("unknown".into()) {
            return Err(Error::unknown_graph("unknown", &["agent", "counter"]));
        }
        Ok(row(thread.unwrap_or(target().thread), target().run))
    }
    async fn stream_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<Streaming, Error> {
        self.create_run(thread, run).await?;
        Ok(Streaming {
            run: target(),
            frames: self.frames(),
            on_disconnect: self.departure(),
        })
    }
    async fn wait_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<Waiting, Error> {
        self.create_run(thread, run).await?;
        Ok(Waiting {
            run: target(),
            result: async { value!({"count": 1}) }.boxed(),
            on_disconnect: self.departure(),
        })
    }
    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<runs::Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<runs::Run>, Error> {
        known(thread)?;
        self.note((status, limit, offset));
        Ok(vec![row(thread, target().run)])
    }
    async fn run(&self, run: Target) -> Result<runs::Run, Error> {
        if run != target() {
            return Err(Error::not_found());
        }
        Ok(row(run.thread, run.run))
    }
    async fn delete_run(&self, run: Target) -> Result<(), Error> {
        self.run(run).await.map(|_| ())
    }
    async fn join_run(&self, run: Target, cancel: bool) -> Result<Outcome, Error> {
        self.note((run, cancel));
        Ok((async { value!({}) }.boxed(), None))
    }
    fn keeps_events(&self, _: Target) -> bool {
        true
    }
    async fn join_stream(
        &self,
        run: Target,
        join: request::Join,
    ) -> Result<(Box<dyn FrameSource>, Option<OnDisconnect>), Error> {
        self.note((run, &join));
        Ok((self.frames(), None))
    }
    async fn cancel_run(
        &self,
        run: Target,
        action: CancelAction,
        wait: bool,
    ) -> Result<Option<Value>, Error> {
        self.note((run, action));
        Ok(wait.then(|| value!({})))
    }

    async fn assistant(&self, _id: AssistantId) -> Result<Value, Error> {
        Err(Error::not_found())
    }
    async fn search_assistants(
        &self,
        search: assistant_request::Search,
    ) -> Result<Vec<Value>, Error> {
        self.note(&search);
        Ok(vec![value!({"assistant_id": "a", "name": "counter"})])
    }
    async fn graph(&self, assistant: Assistant, xray: Xray) -> Result<Value, Error> {
        self.note((assistant, xray));
        Ok(value!({"nodes": [], "edges": []}))
    }
    async fn schemas(&self, assistant: AssistantId) -> Result<Value, Error> {
        self.note(assistant);
        Ok(value!({"graph_id": "counter"}))
    }
}
