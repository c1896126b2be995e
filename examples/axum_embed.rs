//! A program with an HTTP server of its own (axum), which has agents beside its other routes. It knows its
//! users by tokens: each sees their own threads and nobody else's.
//!
//! ```text
//! TOKENS=ann=secret-1,bob=secret-2 cargo run --example axum_embed
//! curl http://127.0.0.1:2024/version
//! curl -H "authorization: Bearer secret-1" http://127.0.0.1:2024/app/me
//! curl -N -H "authorization: Bearer secret-1" http://127.0.0.1:2024/runs/stream \
//!     -d '{"assistant_id": "countdown", "input": {"from": 3}, "stream_mode": "custom"}'
//! ```

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, Request},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use backstitch::{
    Server,
    prelude::*,
    service::{Peer, Principal, Refused},
};
use tokio::{net::TcpListener, signal::unix};

#[derive(State)]
struct Countdown {
    from: u64,
    said: Option<String>,
}

async fn count(state: Countdown, ctx: Ctx) -> Result<Update<Countdown>> {
    for left in (1..=state.from).rev() {
        ctx.emit(json!({"left": left}));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Countdown::update().said("Done.".to_owned()))
}

/// The users of this program by their tokens. A real one asks its database, or checks a signature.
fn users() -> HashMap<String, Arc<str>> {
    let listed = std::env::var("TOKENS").unwrap_or_default();
    let pairs = listed.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(user, token)| (token.to_owned(), user.into()))
        .collect()
}

fn who(
    users: &HashMap<String, Arc<str>>,
    head: &http::request::Parts,
) -> Result<Principal, Refused> {
    let header = head.headers.get("authorization");
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else {
        return Err(Refused::unknown(
            "Send your token as `Authorization: Bearer ...`",
        ));
    };
    match users.get(token) {
        Some(user) => Ok(Principal::new(user.clone())),
        None => Err(Refused::unknown("This token is nobody's")),
    }
}

/// A route of this program that needs to know its user: the server has authenticated the request.
async fn me(Extension(user): Extension<Principal>) -> String {
    user.name().to_string()
}

/// Lets the server know which machine sends a request.
async fn with_peer(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(Peer(peer.ip()));
    next.run(request).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let users = Arc::new(users());
    let prefix = std::env::var("APP_PREFIX").unwrap_or_else(|_| "/app".to_owned());
    let countdown = Graph::<Countdown>::new()
        .node("count", count)
        .edge(START, "count")
        .build();
    let (agents, handle) = Server::new()
        .graph("countdown", countdown)
        .authenticate(move |head| std::future::ready(who(&users, &head)))
        .routes(&prefix, Router::new().route("/app/me", get(me)))
        .on_stop(async || {
            tracing::info!("the agents have stopped");
            Ok(())
        })
        .embed()
        .await?;
    let app = Router::new()
        .route("/version", get(async || env!("CARGO_PKG_VERSION")))
        .fallback_service(agents)
        .layer(middleware::from_fn(with_peer));

    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    let port = std::env::var("PORT").unwrap_or_else(|_| "2024".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
            // Requests are answered while the agents drain.
            if let Err(error) = handle.drain().await {
                tracing::error!("{error:#}");
            }
        })
        .await?;
    Ok(())
}
