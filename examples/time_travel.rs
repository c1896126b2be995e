//! Time travel over HTTP: two turns of a conversation, a fork from the first, and both futures
//! drawn as a tree.
//!
//! ```sh
//! cargo run --example time_travel
//! ```
//!
//! The program starts itself a second time as a server on a free port, talks to it with plain
//! requests, which it prints, and stops it. To play on with curl, keep a server:
//!
//! ```sh
//! cargo run --example time_travel -- serve --memory
//! ```

use std::{collections::BTreeMap, env, process::ExitCode, process::Stdio};

use anyhow::Context;
use backstitch::{Server, prelude::*};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

#[derive(State)]
struct Story {
    /// The lines so far, of the player and of the story.
    #[state(append)]
    lines: Vec<String>,
}

async fn tell(story: Story) -> Update<Story> {
    let last = story.lines.last().map_or("", String::as_str);
    let answer = match last {
        "go left" => "You stand before a door.",
        "open the door" => "Behind it is a dragon.",
        "climb the wall" => "On the other side is the sea.",
        _ => "Nothing happens.",
    };
    Story::update().lines(answer)
}

#[tokio::main]
async fn main() -> ExitCode {
    if env::args().len() > 1 {
        let graph = Graph::<Story>::new().node("tell", tell).edge(START, "tell");
        return Server::new().graph("story", graph.build()).run().await;
    }
    match travel().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn travel() -> Result<()> {
    let (_server, address) = serve().await?;
    let post = async |path: &str, body: Json| request(&address, path, body).await;

    println!("Two turns.\n");
    let thread = post("/threads", json!({})).await?;
    let thread = format!("/threads/{}", text(&thread["thread_id"])?);
    let wait = format!("{thread}/runs/wait");
    let turn = |said: &str| json!({"assistant_id": "story", "input": {"lines": [said]}});
    post(&wait, turn("go left")).await?;
    let end = post(&wait, turn("open the door")).await?;
    println!("  {}\n", end["lines"]);

    println!("Every superstep left a checkpoint that knows its parent.\n");
    let history = format!("{thread}/history");
    let before = post(&history, json!({"limit": 100})).await?;
    draw(&before)?;

    // The newest checkpoint comes first, so the first turn's end is the last that has none next.
    let checkpoints = before.as_array().context("a history is a list")?;
    let mut ends = checkpoints.iter().filter(|c| c["next"] == json!([]));
    let first_turn = ends.next_back().context("the first turn has ended")?;
    let fork = text(&first_turn["checkpoint"]["checkpoint_id"])?;

    println!(
        "\nBack to the end of the first turn, {}, and another way.\n",
        short(fork)
    );
    let mut other = turn("climb the wall");
    other["checkpoint_id"] = fork.into();
    let end = post(&wait, other).await?;
    println!("  {}\n", end["lines"]);

    println!("Nothing was lost: both futures hang on the same past.\n");
    draw(&post(&history, json!({"limit": 100})).await?)
}

/// Starts this program as a server on a free port; dropping the child stops it.
async fn serve() -> Result<(Child, String)> {
    let mut server = Command::new(env::current_exe()?)
        .args(["serve", "--memory", "--port", "0"])
        .env("LOG_LEVEL", "warn")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = server.stdout.take().context("stdout is piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    let address = line.trim().strip_prefix("listening on http://");
    let address = address.context("the server did not start")?.to_owned();
    Ok((server, address))
}

/// Posts JSON and reads the response.
async fn request(address: &str, path: &str, body: Json) -> Result<Json> {
    println!("  POST {path} {body}");
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("host", address)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(
        status.is_success(),
        "{path} answered {status}: {}",
        String::from_utf8_lossy(&answer)
    );
    Ok(serde_json::from_slice(&answer)?)
}

/// Draws checkpoints by their parent links, with what each one added to the story.
fn draw(history: &Json) -> Result<()> {
    let mut children: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
    for checkpoint in history.as_array().context("a history is a list")? {
        let parent = checkpoint["parent_checkpoint"]["checkpoint_id"].as_str();
        children
            .entry(parent.unwrap_or_default())
            .or_default()
            .push(checkpoint);
    }
    // Ids are greater than those of the parents, so they show age.
    for siblings in children.values_mut() {
        siblings.sort_by_key(|c| c["checkpoint"]["checkpoint_id"].as_str());
    }
    branch(&children, "", "  ", 0)
}

/// A line per checkpoint: straight on below each other, indented where the past has two futures.
fn branch(
    children: &BTreeMap<&str, Vec<&Json>>,
    parent: &str,
    indent: &str,
    told: usize,
) -> Result<()> {
    let next = children.get(parent).map(Vec::as_slice).unwrap_or_default();
    for (i, checkpoint) in next.iter().enumerate() {
        let id = text(&checkpoint["checkpoint"]["checkpoint_id"])?;
        let lines = checkpoint["values"]["lines"].as_array();
        let lines = lines.map(Vec::as_slice).unwrap_or_default();
        let added = lines.get(told..).unwrap_or_default();
        let added: Vec<&str> = added.iter().filter_map(Json::as_str).collect();
        let (mark, deeper) = match (next.len(), i + 1 == next.len()) {
            (1, _) => ("", ""),
            (_, false) => ("├─ ", "│  "),
            (_, true) => ("└─ ", "   "),
        };
        println!("{indent}{mark}{}  {}", short(id), added.join(" / "));
        branch(children, id, &format!("{indent}{deeper}"), lines.len())?;
    }
    Ok(())
}

/// The beginning of a checkpoint's id is the time it was made, coarse parts first.
fn short(id: &str) -> &str {
    id.get(..18).unwrap_or(id)
}

fn text(value: &Json) -> Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}
