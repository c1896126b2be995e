//! A server with two graphs over a private database, whose slow parts tests control: `counter`
//! ends at once, `feed` emits what a test feeds it.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{OwnedRwLockWriteGuard, RwLock, mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    channel::Kind,
    checkpoint,
    contention::Patience,
    crons,
    graph::{Compiled, Graph, Output, START},
    http::{Server, Services},
    id::ThreadId,
    idempotency::{self, Claim, Claimed},
    runs::{
        self, Parts, Status,
        request::{Assistant, Requester, Run, Target},
    },
    storage::sqlite,
    threads::request::Create,
    tree::{IfExists, members::Access},
    value,
    webhooks::Sender,
};

/// What a server is like.
#[derive(Default)]
pub struct Setup {
    pub options: Options,
    /// Decides which crons are due, and is read often.
    pub clock: crons::Clock,
    pub runs: runs::Options,
    /// A graph besides.
    pub more: Option<(&'static str, Arc<Compiled>)>,
}

/// Feeds of runs that have not begun.
type Feeds = Arc<Mutex<VecDeque<mpsc::UnboundedReceiver<Value>>>>;

pub struct Running {
    pub address: SocketAddr,
    pub services: Services,
    /// While a test keeps it closed, requests with an idempotency key wait.
    pub gate: Arc<Gate>,
    pub drain: CancellationToken,
    pub cut: CancellationToken,
    pub server: JoinHandle<()>,
    feeds: Feeds,
}

impl Running {
    pub async fn start(options: Options) -> Self {
        Self::start_at(options, crons::Clock::default()).await
    }

    /// With a clock that decides which crons are due, and is read often.
    pub async fn start_at(options: Options, clock: crons::Clock) -> Self {
        Self::start_as(Setup {
            options,
            clock,
            ..Setup::default()
        })
        .await
    }

    pub async fn start_as(setup: Setup) -> Self {
        let Setup {
            options,
            clock,
            runs,
            more,
        } = setup;
        let store = Arc::new(sqlite::Store::private().unwrap());
        let gate = Arc::<Gate>::default();
        let parts = Parts {
            graph_making: Duration::from_secs(10),
            crons: crons::Service::new(
                store.clone(),
                crons::Options::default(),
                clock,
                Patience::default(),
            ),
            sender: Sender::new(options.webhooks.clone(), None),
            ..Parts::over(store.clone())
        };
        let keys = Arc::new(Gated {
            keys: store,
            gate: gate.clone(),
        });
        let feeds = Feeds::default();
        let graphs = [
            ("agent".into(), agent(feeds.clone())),
            ("counter".into(), counter()),
        ];
        let more = more.map(|(name, graph)| (name.into(), graph));
        let graphs = graphs.into_iter().chain(more);
        let drain = CancellationToken::new();
        let run_options = runs::Options {
            poll: std::time::Duration::from_millis(50),
            ..runs
        };
        let services = Services::new(parts, keys, graphs, run_options, drain.clone());
        services.start().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = CancellationToken::new();
        let server = Server::new(services.clone(), options, drain.clone(), cut.clone());
        let running = Self {
            address,
            services,
            gate,
            drain,
            cut,
            server: tokio::spawn(server.serve(listener)),
            feeds,
        };
        running.thread(THREAD.parse().unwrap(), value!({})).await;
        running
    }

    /// Creates a thread of the graph `counter`.
    pub async fn thread(&self, id: ThreadId, metadata: Value) {
        let mut metadata = metadata.as_map().cloned().unwrap();
        metadata.insert("graph_id", "counter");
        let new = Create {
            id: Some(id),
            id_of_key: None,
            metadata,
            if_exists: IfExists::Raise,
            supersteps: vec![],
            principal: "".into(),
            ttl: None,
        };
        self.services.threads().create(new).await.unwrap();
    }

    /// Makes the run [`RUN`] on [`THREAD`].
    pub async fn run(&self) {
        let request = Run {
            id: Some(RUN.parse().unwrap()),
            input: Some(value!({"count": 1})),
            ..Run::of(
                Assistant::Graph("counter".into()),
                Requester::unrestricted(),
            )
        };
        let thread = Some(THREAD.parse().unwrap());
        let created = self.services.runs().create(thread, request, false).await;
        created.unwrap().handle.ended().await;
    }

    /// Whatever the next run of `agent` emits until the sender is dropped. The sender is closed
    /// once the run was cancelled.
    pub fn feed(&self) -> mpsc::UnboundedSender<Value> {
        let (send, receive) = mpsc::unbounded_channel();
        self.feeds.lock().push_back(receive);
        send
    }

    /// Begins a run of `agent` on [`THREAD`] that goes on until its feed ends.
    pub async fn begin(&self) -> (Target, mpsc::UnboundedSender<Value>) {
        let feed = self.feed();
        let request = Run {
            input: Some(value!({"count": 1})),
            stream_resumable: true,
            stream_mode: vec![runs::request::Mode::Values, runs::request::Mode::Custom],
            ..Run::of(Assistant::Graph("agent".into()), Requester::unrestricted())
        };
        let thread: ThreadId = THREAD.parse().unwrap();
        let created = self.services.runs().create(Some(thread), request, false);
        let run = created.await.unwrap().row.id;
        while !self.feeds.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        (Target { thread, run }, feed)
    }

    /// Waits until every run of [`THREAD`] has ended; their statuses, the newest first.
    pub async fn ended(&self) -> Vec<Status> {
        loop {
            let statuses = self.statuses().await;
            if statuses.iter().all(|status| status.is_final()) {
                return statuses;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Statuses of the runs of [`THREAD`], the newest first; none once it is deleted.
    pub async fn statuses(&self) -> Vec<Status> {
        let (access, thread) = (Access::unrestricted(), THREAD.parse().unwrap());
        let runs = self.services.runs();
        match runs
            .list(
                &access,
                thread,
                None,
                (100, 0),
                runs::service::RequestPart::Nothing,
            )
            .await
        {
            Ok(found) => found.items.map(|run| run.unwrap().status).collect().await,
            Err(_) => vec![],
        }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request and reads until the server closes.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&str>,
    ) -> String {
        let mut socket = self.connect().await;
        let text = request(method, path, headers, body);
        socket.write_all(text.as_bytes()).await.unwrap();
        rest(&mut socket).await
    }
}

fn counter() -> Arc<Compiled> {
    let graph = Graph::untyped()
        .channel("count", Kind::Last)
        .node("only", |_| async { Ok(Output::default()) })
        .edge(START, "only");
    graph.build().unwrap()
}

fn agent(feeds: Feeds) -> Arc<Compiled> {
    let graph = Graph::untyped()
        .channel("count", Kind::Last)
        .node("only", move |ctx| {
            let feed = feeds.lock().pop_front();
            async move {
                let mut feed = feed.expect("a test feeds each run");
                while let Some(event) = feed.recv().await {
                    ctx.emit(event);
                }
                Ok(Output::default())
            }
        })
        .edge(START, "only");
    graph.build().unwrap()
}

/// Where requests wait while a test keeps it closed.
#[derive(Default)]
pub struct Gate {
    lock: Arc<RwLock<()>>,
    /// How many requests have reached it.
    arrived: watch::Sender<usize>,
}

impl Gate {
    /// Closes it until the guard is dropped.
    pub async fn close(&self) -> OwnedRwLockWriteGuard<()> {
        self.lock.clone().write_owned().await
    }

    /// Waits until a request has reached it.
    pub async fn reached(&self) {
        let mut arrived = self.arrived.subscribe();
        arrived.wait_for(|count| *count > 0).await.unwrap();
    }

    async fn pass(&self) {
        self.arrived.send_modify(|count| *count += 1);
        drop(self.lock.read().await);
    }
}

/// Idempotency keys behind a gate; one of them makes the request panic.
struct Gated {
    keys: Arc<sqlite::Store>,
    gate: Arc<Gate>,
}

#[async_trait]
impl idempotency::Store for Gated {
    async fn claim_key(&self, claim: Claim) -> Result<Claimed, checkpoint::Error> {
        assert_ne!(&*claim.key.text, "panic");
        self.gate.pass().await;
        self.keys.claim_key(claim).await
    }

    async fn store_response(&self, claim: Claim, answer: Vec<u8>) -> Result<(), checkpoint::Error> {
        self.keys.store_response(claim, answer).await
    }

    async fn release_key(&self, claim: Claim) -> Result<(), checkpoint::Error> {
        self.keys.release_key(claim).await
    }

    async fn abandon_key(&self, claim: Claim) -> Result<(), checkpoint::Error> {
        self.keys.abandon_key(claim).await
    }

    async fn expire_keys(&self, limit: usize) -> Result<u64, checkpoint::Error> {
        self.keys.expire_keys(limit).await
    }
}
