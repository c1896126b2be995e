//! `chat`: a conversation with a graph in the terminal. Replies are streamed; a graph that interrupts
//! has the person's next line as its resume value.

mod input;
mod lines;
mod talk;
mod turn;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    Serving,
    people::{self, Remote},
    screen::Screen,
    state,
};
use crate::{
    client::{Client, Error, segment},
    config::Settings,
};
use input::Shape;
use talk::Talk;

/// How long a server that was started for a chat may take for what is left when the chat ends.
const DRAIN: Duration = Duration::from_secs(2);

/// With which graph, and on which thread.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the graph; else the first one that takes messages
    graph: Option<String>,
    /// Go on with this thread instead of a new one
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub(super) async fn run<S>(
    options: Options,
    mut settings: Settings,
    serve: S,
    screen: &mut Screen,
) -> anyhow::Result<()>
where
    S: AsyncFnOnce(Settings, Serving) -> anyhow::Result<()>,
{
    let client = people::client(&options.remote, &settings)?;
    let is_there = options.remote.url.is_some()
        || !matches!(client.get("/ok").await, Err(Error::NoServer { .. }));
    if is_there {
        return converse(&client, &options, screen).await;
    }
    let first = settings.api_keys.first();
    let key = people::key().or_else(|| first.map(|one| one.key.reveal().to_owned()));
    // The settings' port stays free for a server that outlives the chat.
    settings.host = "127.0.0.1".into();
    settings.port = 0;
    settings.drain = settings.drain.min(DRAIN);
    let stop = CancellationToken::new();
    let (ready, address) = oneshot::channel();
    let inside = Serving::Inside {
        ready,
        stop: stop.clone(),
    };
    let conversation = async {
        // A server that cannot start says why by itself.
        let Ok(address) = address.await else {
            return Ok(());
        };
        let _stop = stop.drop_guard();
        let address = format!("http://{address}");
        if !options.remote.json {
            let at = client.address();
            screen.faint_line(&format!(
                "no server at {at}, so that one runs here until this chat ends"
            ))?;
        }
        let client = Client::new(&address, key.as_deref())?;
        converse(&client, &options, screen).await
    };
    let (served, conversed) = tokio::join!(serve(settings, inside), conversation);
    served?;
    conversed
}

async fn converse(client: &Client, options: &Options, screen: &mut Screen) -> anyhow::Result<()> {
    let (graph, assistant) = choose(client, options.graph.as_deref()).await?;
    let schemas = format!("/assistants/{}/schemas", segment(&assistant));
    let shape = Shape::of(&client.get(&schemas).await?["input_schema"]);
    let (thread, interrupts) = match &options.thread {
        Some(thread) => {
            let state = format!("/threads/{}/state", segment(thread));
            let state = client.get(&state).await?;
            let interrupts = state::interrupts(&state).into_iter().cloned().collect();
            (thread.clone(), interrupts)
        }
        None => {
            let thread = client.post("/threads", &json!({})).await?;
            let id = thread["thread_id"].as_str().unwrap_or_default();
            (id.to_owned(), vec![])
        }
    };
    let mut talk = Talk {
        client,
        screen,
        json: options.remote.json,
        assistant,
        shape,
        thread,
        interrupts,
    };
    talk.run(&graph).await
}

/// The graph of a chat and its assistant.
async fn choose(client: &Client, named: Option<&str>) -> anyhow::Result<(String, String)> {
    let found = client
        .post("/assistants/search", &json!({"limit": 1000}))
        .await?;
    let found = found.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let both = |one: &Value| (text(&one["graph_id"]), text(&one["assistant_id"]));
    let made: Vec<&Value> = found
        .iter()
        .filter(|one| one["metadata"]["created_by"] == "system")
        .collect();
    if let Some(named) = named {
        let of_graph = made.iter().copied().find(|one| one["graph_id"] == named);
        let by_id = found.iter().find(|one| one["assistant_id"] == named);
        return of_graph.or(by_id).map(both).ok_or_else(|| {
            let names: Vec<String> = made.iter().map(|one| text(&one["graph_id"])).collect();
            anyhow::anyhow!(
                "the server has no graph `{named}`; it has {}",
                names.join(", ")
            )
        });
    }
    for one in &made {
        let schemas = format!("/assistants/{}/schemas", segment(&both(one).1));
        let schemas = client.get(&schemas).await?;
        if matches!(Shape::of(&schemas["input_schema"]), Shape::Messages(_)) {
            return Ok(both(one));
        }
    }
    let first = made.first().copied().map(both);
    first.ok_or_else(|| anyhow::anyhow!("the server has no graphs"))
}
