//! A server with routes, layers, an authentication and flags of its own that misbehave when a request or a
//! variable of the environment says so.

use std::{
    convert::Infallible,
    process::ExitCode,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Extension, Router,
    routing::{get, post},
};
use backstitch::{
    Server,
    prelude::*,
    service::{GraphConfig, Next, Principal, Refused, RequestBody, ResponseBody},
};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, request::Parts};
use tower_layer::layer_fn;
use tower_service::Service;

#[derive(clap::Args)]
struct Mine {
    /// What `/own/word` says
    #[arg(long, default_value = "hello")]
    word: String,
}

#[derive(clap::Args)]
struct Clashing {
    #[arg(long)]
    port: Option<String>,
}

#[derive(State)]
struct Note {
    text: Option<String>,
}

async fn write(_: Note) -> Update<Note> {
    Note::update().text("written".to_owned())
}

#[derive(State)]
struct Talk {
    #[state(append)]
    said: Vec<String>,
}

#[derive(State)]
struct Other {
    text: Option<String>,
}

async fn hello(_: Talk) -> Update<Talk> {
    Talk::update().said("Hello".to_owned())
}

async fn bonjour(_: Talk) -> Update<Talk> {
    Talk::update().said("Bonjour".to_owned())
}

async fn end(_: Talk) -> Update<Talk> {
    Talk::update().said(".".to_owned())
}

async fn nothing(_: Other) {}

/// A graph in the language of the context, whose nodes no other language has; some languages are out of
/// order, and some come after so many milliseconds.
async fn talk(config: GraphConfig) -> Result<Arc<Compiled>> {
    let language = config.text("language").unwrap_or("en");
    eprintln!("made {language}");
    if let Some(time) = language.strip_prefix("after ") {
        tokio::time::sleep(Duration::from_millis(time.parse()?)).await;
    }
    let graph = Graph::<Talk>::new();
    let graph = match language {
        "fails" => backstitch::anyhow::bail!("there is no such dictionary"),
        "panics" => panic!("a secret of the graph"),
        "hangs" => std::future::pending().await,
        "other" => {
            let graph = Graph::<Other>::new().node("nothing", nothing);
            return Ok(graph.edge(START, "nothing").build()?);
        }
        "fr" => graph
            .node("bonjour", bonjour)
            .node("fin", end)
            .edge(START, "bonjour")
            .edge("bonjour", "fin"),
        _ => graph
            .node("hello", hello)
            .node("end", end)
            .edge(START, "hello")
            .edge("hello", "end"),
    };
    Ok(graph.build()?)
}

/// The header `x-user` says who it is, and what the authentication does.
async fn who(head: Parts) -> Result<Principal, Refused> {
    let user = head.headers.get("x-user");
    let user = user
        .ok_or_else(|| Refused::unknown("Send x-user"))?
        .to_str()?;
    match user {
        "panics" => panic!("a secret of the authentication"),
        "fails" => Err(std::io::Error::other("a secret of the authentication").into()),
        "nameless" => Ok(Principal::new("")),
        "banned" => Err(Refused::forbidden("You are banned")),
        "unlucky" => Err(Refused::unavailable("The directory is down")),
        "reader" => Ok(Principal::new("ann").reads_only()),
        "root" => Ok(Principal::new("root").administers()),
        name => Ok(Principal::new(name)),
    }
}

/// Marks every response, and panics when a request wants it.
#[derive(Clone)]
struct Marking(Next);

impl Service<Request<RequestBody>> for Marking {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        assert!(!request.headers().contains_key("x-layer-panics"));
        let mut next = self.0.clone();
        async move {
            let mut response = next.call(request).await?;
            let mark = http::HeaderValue::from_static("yes");
            response.headers_mut().insert("x-marked", mark);
            Ok(response)
        }
        .boxed()
    }
}

async fn me(Extension(principal): Extension<Principal>) -> String {
    principal.name().to_string()
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

async fn hook(fails: &'static str) -> anyhow::Result<()> {
    eprintln!("hook {fails}");
    if is_set(fails) {
        anyhow::bail!("{fails}, as wanted");
    }
    if fails == "STOP_FAILS" && is_set("STOP_HANGS") {
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let server = Server::new().program("own", "1.2.3");
    let (server, mine) = if is_set("CLASHING") {
        let (server, Clashing { port }) = server.flags();
        (
            server,
            Mine {
                word: port.unwrap_or_default(),
            },
        )
    } else {
        server.flags::<Mine>()
    };
    let own = Router::new()
        .route("/own/me", get(me))
        .route(
            "/own/body",
            post(async |body: axum::body::Bytes| body.len().to_string()),
        )
        .route(
            "/own/panic",
            get(async || -> &str { panic!("a secret of a route") }),
        );
    let open = Router::new().route("/open/word", get(async move || mine.word.clone()));
    let server = server
        .setting("body_limit", "2048")
        .graph(
            "note",
            Graph::<Note>::new()
                .node("write", write)
                .edge(START, "write")
                .build(),
        )
        .graph_factory(
            "talk",
            |config| config.text("language").unwrap_or("en").to_owned(),
            talk,
        )
        .routes("/own", own)
        .public_routes("/open", open)
        .layer(layer_fn(Marking))
        .on_start(async || hook("START_FAILS").await)
        .on_stop(async || hook("STOP_FAILS").await);
    let server = if is_set("OPEN") {
        server
    } else {
        server.authenticate(who)
    };
    if is_set("EMBED") {
        return match server.embed().await {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    server.run().await
}
