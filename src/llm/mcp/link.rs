//! The connection to an MCP server: opened, watched, opened anew when it breaks, closed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig},
    model::{Implementation, PaginatedRequestParams, Tool},
    service::{Peer, RunningServiceCancellationToken, ServiceError},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::child::{Process, Program};

/// How long the end of a session may take at a web server.
const CLOSING: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);
/// How long a call waits for a server that is being started anew.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A server that lived this long starts anew after the shortest pause.
const HEALTHY: Duration = Duration::from_secs(60);
const MOST_REDIRECTS: usize = 5;
/// The most tools of one server.
const MOST_TOOLS: usize = 512;

pub(super) enum Target {
    Http { url: String, headers: HeaderMap },
    Command(Program),
}

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) most_bytes: usize,
}

#[derive(Clone)]
enum State {
    Up(Peer<RoleClient>),
    /// It is down, and why.
    Down(Arc<str>),
    Closed,
}

/// A connection that a task keeps open until this is dropped or closed.
pub(super) struct Link {
    server: Arc<str>,
    limits: Limits,
    state: watch::Receiver<State>,
    /// Ends the task.
    stop: CancellationToken,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Link {
    /// Connects once, and fails if that fails.
    pub(super) async fn open(
        server: Arc<str>,
        target: Target,
        limits: Limits,
    ) -> Result<Arc<Self>, String> {
        let session = Session::begin(&target, limits).await?;
        let (states, state) = watch::channel(State::Up(session.peer()));
        let stop = CancellationToken::new();
        let keeper = Keeper {
            server: Arc::clone(&server),
            target,
            limits,
            states,
            stop: stop.clone(),
        };
        tokio::spawn(keeper.keep(session));
        Ok(Arc::new(Self {
            server,
            limits,
            state,
            stop,
        }))
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// All tools that the server names.
    pub(super) async fn list(&self) -> Result<Vec<Tool>, String> {
        let listing = async {
            let peer = self.peer().await?;
            let mut tools = Vec::new();
            let mut cursor = None;
            loop {
                let params = PaginatedRequestParams::default().with_cursor(cursor);
                let page = peer.list_tools(Some(params)).await;
                let page = page.map_err(|error| format!("cannot list its tools: {error}"))?;
                let empty = page.tools.is_empty();
                tools.extend(page.tools);
                if tools.len() > MOST_TOOLS {
                    return Err(format!("it offers more than {MOST_TOOLS} tools"));
                }
                match page.next_cursor {
                    Some(next) if !empty => cursor = Some(next),
                    _ => return Ok(tools),
                }
            }
        };
        match timeout(self.limits.timeout, listing).await {
            Ok(tools) => tools,
            Err(_) => Err(format!(
                "it did not list its tools within {:?}",
                self.limits.timeout
            )),
        }
    }

    /// Calls a tool. Dropping the call tells the server that nobody waits for it.
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
    ) -> anyhow::Result<CallToolResponse> {
        let limit = self.limits.timeout;
        let server = &self.server;
        let call = async {
            let peer = self.peer().await;
            let peer = peer.map_err(|why| anyhow::anyhow!("the MCP server `{server}` {why}"))?;
            match peer.call_tool_once(params).await {
                Ok(response) => Ok(response),
                Err(ServiceError::McpError(error)) => Err(anyhow::anyhow!("{}", error.message)),
                Err(ServiceError::TransportClosed) => {
                    let why = self.why_down().await;
                    Err(anyhow::anyhow!(
                        "the MCP server `{server}` broke off the call: it {why}"
                    ))
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    Err(anyhow::anyhow!("the MCP server `{server}` failed: {error}"))
                }
            }
        };
        match timeout(limit, call).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!(
                "the MCP server `{server}` was silent for {limit:?}"
            )),
        }
    }

    /// The server, waited for a little while it starts anew; else why it is not there.
    async fn peer(&self) -> Result<Peer<RoleClient>, String> {
        let mut state = self.state.clone();
        let there = timeout(
            PATIENCE,
            state.wait_for(|state| !matches!(state, State::Down(_))),
        );
        if let Ok(Ok(state)) = there.await
            && let State::Up(peer) = &*state
        {
            return Ok(peer.clone());
        }
        match &*self.state.borrow() {
            State::Down(why) => Err(format!("is not there: it {why}")),
            _ => Err("is closed".to_owned()),
        }
    }

    /// Why the server went away, which the task knows a moment after a call does.
    async fn why_down(&self) -> String {
        let mut state = self.state.clone();
        let down = state.wait_for(|state| !matches!(state, State::Up(_)));
        match timeout(PATIENCE, down).await {
            Ok(Ok(state)) => match &*state {
                State::Down(why) => why.to_string(),
                _ => "was closed".to_owned(),
            },
            _ => "closed the connection".to_owned(),
        }
    }

    /// Ends the connection and waits for its end.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        let mut state = self.state.clone();
        // It fails when the task has ended, which is what is waited for.
        let _ = state.wait_for(|state| matches!(state, State::Closed)).await;
    }
}

/// The task that watches a connection.
struct Keeper {
    server: Arc<str>,
    target: Target,
    limits: Limits,
    states: watch::Sender<State>,
    stop: CancellationToken,
}

impl Keeper {
    async fn keep(self, mut session: Session) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = tokio::time::Instant::now();
            let stopped = tokio::select! {
                () = self.stop.cancelled() => true,
                () = &mut session.ended => false,
            };
            let why = session.end(!stopped).await;
            if stopped {
                break;
            }
            if since.elapsed() >= HEALTHY {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(server = %self.server, "the MCP server {why}");
            self.states.send_replace(State::Down(why.into()));
            let Some(next) = self.reopen(&mut pause).await else {
                break;
            };
            self.states.send_replace(State::Up(next.peer()));
            session = next;
        }
        self.states.send_replace(State::Closed);
    }

    /// Tries to connect until it works; none if the connection is to end.
    async fn reopen(&self, pause: &mut Duration) -> Option<Session> {
        let attempts = async {
            loop {
                tokio::time::sleep(*pause).await;
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                match Session::begin(&self.target, self.limits).await {
                    Ok(session) => return session,
                    Err(why) => {
                        tracing::warn!(server = %self.server, "the MCP server {why}");
                        self.states.send_replace(State::Down(why.into()));
                    }
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => None,
            session = attempts => Some(session),
        }
    }
}

/// One connection, from the handshake to its end.
struct Session {
    peer: Peer<RoleClient>,
    stop: RunningServiceCancellationToken,
    /// Ready once nothing is received any more.
    ended: BoxFuture<'static, ()>,
    process: Option<(Process, Arc<std::sync::OnceLock<()>>)>,
    most_bytes: usize,
}

impl Session {
    /// Starts the program if there is one, and shakes hands. The error follows "it".
    async fn begin(target: &Target, limits: Limits) -> Result<Self, String> {
        let Limits {
            timeout: limit,
            most_bytes,
        } = limits;
        let about = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("backstitch", env!("CARGO_PKG_VERSION")),
        );
        let (running, process) = match target {
            Target::Http { url, headers } => {
                let transport = over_http(url, headers, most_bytes)?;
                (timeout(limit, about.serve(transport)).await, None)
            }
            Target::Command(program) => {
                let started = program
                    .start(most_bytes)
                    .map_err(|error| format!("could not be started: {error}"))?;
                let transport = AsyncRwTransport::new_client(started.output, started.input)
                    .with_max_line_length(most_bytes.saturating_add(2));
                let running = timeout(limit, about.serve(transport)).await;
                (running, Some((started.process, started.too_long)))
            }
        };
        match running {
            Ok(Ok(running)) => Ok(Self {
                peer: running.peer().clone(),
                stop: running.cancellation_token(),
                ended: Box::pin(async move {
                    let _ = running.waiting().await;
                }),
                process,
                most_bytes,
            }),
            Ok(Err(error)) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                Err(match process {
                    Some((process, _)) => match process.end().await {
                        Some(status) => format!("ended at once ({status}): {error}"),
                        None => format!("did not begin: {error}"),
                    },
                    None => format!("did not begin: {error}"),
                })
            }
            Err(_) => Err(format!("did not begin within {limit:?}")),
        }
    }

    fn peer(&self) -> Peer<RoleClient> {
        self.peer.clone()
    }

    /// Ends it if it has not ended; why, in words that follow "it".
    async fn end(self, ended: bool) -> String {
        if !ended {
            self.stop.cancel();
            let _ = timeout(CLOSING, self.ended).await;
        }
        let Some((process, too_long)) = self.process else {
            return "closed the connection".to_owned();
        };
        let status = process.end().await;
        if too_long.get().is_some() {
            return format!("sent a message of more than {} bytes", self.most_bytes);
        }
        match status {
            Some(status) => format!("ended ({status})"),
            None => "closed its output".to_owned(),
        }
    }
}

/// Redirects are followed within the server's address only, since headers may hold keys.
fn over_http(
    url: &str,
    headers: &HeaderMap,
    most_bytes: usize,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    crate::tls::set_provider();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::custom(|attempt| {
            let first = attempt.previous().first().map(reqwest::Url::origin);
            if attempt.previous().len() <= MOST_REDIRECTS && first == Some(attempt.url().origin()) {
                attempt.follow()
            } else {
                attempt.stop()
            }
        }))
        .build()
        .map_err(|error| format!("has no HTTP client: {:#}", anyhow::Error::new(error)))?;
    let headers: HashMap<HeaderName, HeaderValue> = headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers);
    config.max_sse_event_size = most_bytes;
    config.max_json_response_size = most_bytes;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
