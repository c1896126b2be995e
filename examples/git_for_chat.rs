//! Git for conversations: post, edit, rewind, tag, restore, fork, switch and compare, with a
//! drawing of the conversation's tree after each step.
//!
//! Watch a tour, or play yourself (`help` lists the commands):
//!
//! ```sh
//! cargo run --example git_for_chat
//! cargo run --example git_for_chat -- play
//! ```
//!
//! Both start a server of their own on a free port, with a graph that replies to everything. To use
//! another server, name its address and the assistant that replies:
//!
//! ```sh
//! cargo run --example reference_server -- --memory &
//! cargo run --example git_for_chat -- play http://127.0.0.1:2024 agent
//! ```
//!
//! Things to try: edit a message twice and switch between the replies; rewind to an old message
//! and go on from there; tag a place, wander off, restore it; fork, and see that what is said in
//! the fork does not show where it came from. Nothing you do loses anything.

use std::{collections::HashMap, env, process::ExitCode, process::Stdio};

use anyhow::{Context, bail};
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
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

/// Replies with the length of its history, which shows the branch of the reply.
async fn answer(chat: Chat) -> Update<Chat> {
    let said = chat.messages.iter().map(Message::text);
    let said: Vec<String> = said.collect();
    let last = said.last().cloned().unwrap_or_default();
    let before = said.len() / 2;
    Chat::update().messages(Message::ai(format!(
        "To \"{last}\", after {before} turn(s)."
    )))
}

const HELP: &str = "
  say TEXT        say something on the active branch and have it answered
  edit N TEXT     say message N otherwise, on a branch of its own
  rewind N        go back to message N, on a branch of its own
  tag NAME        name the place where the active branch stands
  restore NAME    go back to a tag, on a branch of its own
  switch BRANCH   make another branch the active one
  fork N          begin a new thread that shares everything up to message N
  thread N        go to thread N
  diff A B        compare two places: branch:NAME, tag:NAME, or message numbers
  tree            draw the tree
  quit
";

const TOUR: &[(&str, &str)] = &[
    ("Two turns.", "say Shall we go left?"),
    ("", "say Shall we open the door?"),
    ("A name for this place.", "tag door"),
    (
        "Another way to say the third message. The first one stays where it is.",
        "edit 3 Shall we climb the wall?",
    ),
    (
        "Back to the end of the first turn, and on from there.",
        "rewind 2",
    ),
    ("", "say Shall we sleep first?"),
    (
        "What differs between where we are and the door?",
        "diff branch:main-v2-v2 tag:door",
    ),
    ("Back to the door. The tag stays.", "restore door"),
    ("", "say Who is behind it?"),
    ("The first branch is as it was.", "switch main"),
    ("A thread of its own that shares the first turn.", "fork 2"),
    ("", "say Let us tell this to somebody else."),
    ("The thread it came from knows nothing of it.", "thread 1"),
];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *words {
        ["serve", ..] => {
            let graph = Graph::<Chat>::new()
                .node("answer", answer)
                .edge(START, "answer");
            return Server::new().graph("chat", graph.build()).run().await;
        }
        [] => show(false, None).await,
        ["play"] => show(true, None).await,
        ["tour" | "play", address, assistant] => {
            show(words[0] == "play", Some((address, assistant))).await
        }
        _ => Err(anyhow::anyhow!(
            "give nothing, `play`, or `tour`/`play` with ADDRESS and ASSISTANT"
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn show(play: bool, server: Option<(&str, &str)>) -> Result<()> {
    let mut own = None;
    let (address, assistant) = match server {
        Some((address, assistant)) => {
            let address = address.trim_start_matches("http://").trim_end_matches('/');
            (address.to_owned(), assistant.to_owned())
        }
        None => {
            let (child, address) = serve().await?;
            own = Some(child);
            (address, "chat".to_owned())
        }
    };
    let mut desk = Desk::open(address, assistant).await?;
    if play {
        println!("{HELP}");
        for line in std::io::stdin().lines() {
            let line = line?;
            if line.trim() == "quit" {
                break;
            }
            // A mistake of the player ends nothing.
            if let Err(error) = desk.step(&line).await {
                println!("  {error:#}");
            }
        }
    } else {
        for (why, command) in TOUR {
            if !why.is_empty() {
                println!("\n{why}");
            }
            println!("\n> {command}");
            desk.step(command).await?;
        }
    }
    drop(own);
    Ok(())
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

/// A player at the server: the threads so far, and the numbers of messages.
struct Desk {
    address: String,
    assistant: String,
    threads: Vec<String>,
    current: usize,
    numbers: HashMap<String, usize>,
    messages: Vec<String>,
}

impl Desk {
    async fn open(address: String, assistant: String) -> Result<Self> {
        let mut desk = Self {
            address,
            assistant,
            threads: vec![],
            current: 0,
            numbers: HashMap::new(),
            messages: vec![],
        };
        let thread = desk.send(Method::POST, "/threads", json!({})).await?;
        desk.threads.push(text(&thread["thread_id"])?.to_owned());
        Ok(desk)
    }

    async fn step(&mut self, line: &str) -> Result<()> {
        let (command, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        match command {
            "" => return Ok(()),
            "say" => self.say(json!({"role": "user", "content": rest})).await?,
            "edit" => {
                let (number, text) = rest.split_once(' ').context("edit N TEXT")?;
                let id = self.message(number)?;
                self.say(json!({"role": "user", "content": text, "id": id}))
                    .await?;
            }
            "rewind" => {
                let id = self.message(rest)?;
                self.post("rewind", json!({"message_id": id})).await?;
            }
            "tag" => {
                let path = format!("{}/tags/{rest}", self.thread());
                self.send(Method::PUT, &path, json!({})).await?;
            }
            "restore" => drop(self.post("restore", json!({"tag": rest})).await?),
            "switch" => {
                let path = format!("branches/{rest}/activate");
                self.post(&path, json!({})).await?;
            }
            "fork" => {
                let id = self.message(rest)?;
                let fork = self.post("fork", json!({"message_id": id})).await?;
                self.threads.push(text(&fork["thread_id"])?.to_owned());
                self.current = self.threads.len() - 1;
            }
            "thread" => {
                let number: usize = rest.parse().context("thread N")?;
                let known = (1..=self.threads.len()).contains(&number);
                anyhow::ensure!(known, "there are {} threads", self.threads.len());
                self.current = number - 1;
            }
            "diff" => return self.diff(rest).await,
            "tree" => {}
            _ => bail!("{HELP}"),
        }
        self.draw().await
    }

    /// Posts a message and runs the assistant; a message with the id of another one replaces that.
    async fn say(&self, message: Json) -> Result<()> {
        let run = json!({"assistant_id": self.assistant});
        let stored = self
            .post("messages", json!({"messages": [message], "run": run}))
            .await?;
        let run = text(&stored["run_id"]).context("the message was stored before")?;
        let path = format!("{}/runs/{run}/join", self.thread());
        self.send(Method::GET, &path, json!({})).await?;
        Ok(())
    }

    async fn diff(&self, ends: &str) -> Result<()> {
        let (from, to) = ends.split_once(' ').context("diff A B")?;
        let address = |text: &str| {
            if text.contains(':') {
                Ok(text.to_owned())
            } else {
                self.message(text).map(|id| format!("message:{id}"))
            }
        };
        let (from, to) = (address(from)?, address(to.trim())?);
        let path = format!("{}/diff?from={from}&to={to}", self.thread());
        let diff = self.send(Method::GET, &path, json!({})).await?;
        println!();
        for (mark, list) in [("-", "removed"), ("+", "added"), ("~", "changed")] {
            for message in diff["messages"][list].as_array().into_iter().flatten() {
                println!(
                    "    {mark} {}: {}",
                    text(&message["role"])?,
                    message["content"]
                );
            }
        }
        for (mark, list) in [("-", "removed"), ("+", "added"), ("~", "changed")] {
            for (name, value) in diff["channels"][list].as_object().into_iter().flatten() {
                println!("    {mark} channel {name} {value}");
            }
        }
        Ok(())
    }

    /// The message with a number of the drawing.
    fn message(&self, number: &str) -> Result<&str> {
        let index = number.trim_start_matches('#').parse::<usize>().ok();
        let id = index.and_then(|number| self.messages.get(number.checked_sub(1)?));
        id.map(String::as_str)
            .with_context(|| format!("`{number}` is no number in the drawing"))
    }

    fn thread(&self) -> String {
        format!("/threads/{}", self.threads[self.current])
    }

    async fn post(&self, path: &str, body: Json) -> Result<Json> {
        let path = format!("{}/{path}", self.thread());
        self.send(Method::POST, &path, body).await
    }

    /// Draws the thread: messages that follow each other stand below each other, the ways a
    /// message was gone on from are indented.
    async fn draw(&mut self) -> Result<()> {
        let path = format!("{}/tree", self.thread());
        let tree = self.send(Method::GET, &path, json!({})).await?;
        let nodes = tree["nodes"].as_array().context("a tree has nodes")?;
        let mut names: HashMap<&str, Vec<String>> = HashMap::new();
        for (list, word) in [("branches", ""), ("tags", "tag ")] {
            for name in tree[list].as_array().into_iter().flatten() {
                let head = name["head_message_id"].as_str();
                let at = head.or_else(|| name["message_id"].as_str());
                let active = if name["is_active"] == true { "*" } else { "" };
                let label = format!("{word}{}{active}", text(&name["name"])?);
                names.entry(at.unwrap_or_default()).or_default().push(label);
            }
        }
        let mut children: HashMap<&str, Vec<&Json>> = HashMap::new();
        for node in nodes {
            let id = text(&node["id"])?;
            if !self.numbers.contains_key(id) {
                self.messages.push(id.to_owned());
                self.numbers.insert(id.to_owned(), self.messages.len());
            }
            let parent = node["parent_id"].as_str().unwrap_or_default();
            children.entry(parent).or_default().push(node);
        }
        println!();
        if self.threads.len() > 1 {
            println!("    thread {} of {}", self.current + 1, self.threads.len());
        }
        if let Some(empty) = names.get("") {
            println!("    (nothing)  [{}]", empty.join(", "));
        }
        let own = &self.threads[self.current];
        // Nodes to draw, each with what stands before it and before what follows it.
        let mut stack: Vec<(&Json, String, String)> = Vec::new();
        let roots = children.get("").into_iter().flatten();
        let left = || "    ".to_owned();
        stack.extend(roots.rev().map(|node| (*node, left(), left())));
        while let Some((node, indent, below)) = stack.pop() {
            let id = text(&node["id"])?;
            let labels = names.get(id).map(|all| format!("  [{}]", all.join(", ")));
            let inherited = if node["thread_id"] == **own {
                ""
            } else {
                "  (inherited)"
            };
            println!(
                "{indent}#{} {}: {}{}{inherited}",
                self.numbers[id],
                text(&node["role"])?,
                node["preview"].as_str().unwrap_or_default(),
                labels.unwrap_or_default()
            );
            let next = children.get(id).map(Vec::as_slice).unwrap_or_default();
            for (place, node) in next.iter().enumerate().rev() {
                let (mark, more) = match (next.len(), place + 1 == next.len()) {
                    (1, _) => ("", ""),
                    (_, false) => ("|- ", "|  "),
                    (_, true) => ("`- ", "   "),
                };
                stack.push((node, format!("{below}{mark}"), format!("{below}{more}")));
            }
        }
        Ok(())
    }

    /// One request, as any HTTP client sends it.
    async fn send(&self, method: Method, path: &str, body: Json) -> Result<Json> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.with_context(|| format!("no server at {}", self.address))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let body = match method {
            Method::GET => String::new(),
            _ => body.to_string(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        let answer: Json = serde_json::from_slice(&answer).unwrap_or_default();
        anyhow::ensure!(
            status.is_success(),
            "{path} answered {status}: {}",
            answer["detail"].as_str().unwrap_or("no reason")
        );
        Ok(answer)
    }
}

fn text(value: &Json) -> Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}
