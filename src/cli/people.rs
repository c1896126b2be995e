//! The commands that people type to work with a server: which server they mean, and what they show.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{chat, diff, drawing, screen::Screen, state, tail, threads, tree};
use crate::{
    client::{self, Client},
    config::Settings,
};

/// Where the server is, and who reads the output.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the server; else that of the settings (HOST, PORT). Its key is BACKSTITCH_API_KEY
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Write JSON for machines
    #[arg(long)]
    pub json: bool,
}

/// A command for people.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Talk to a graph; without --url a server is started here if none runs
    Chat(chat::Options),
    /// List the threads that changed last
    Threads {
        /// How many
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        remote: Remote,
    },
    /// Draw the tree of a thread: its messages, branches and tags
    Tree {
        /// Id of the thread
        thread: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Follow what happens on a thread, until Ctrl-C
    Tail {
        /// Id of the thread
        thread: String,
        /// How many earlier events to begin with
        #[arg(short = 'n', long, default_value_t = 10)]
        earlier: u64,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show the state of a thread
    State {
        /// Id of the thread
        thread: String,
        /// Of this checkpoint instead of the latest one
        #[arg(long, value_name = "ID")]
        checkpoint: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Compare two states of a thread, without what is equal in both
    Diff {
        /// Id of the thread
        thread: String,
        /// Number of a message in the tree, name of a branch or tag, or branch:NAME, tag:NAME,
        /// message:ID, checkpoint:ID, event:NUMBER
        from: String,
        /// As the one before
        to: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Draw a graph
    Graph {
        /// Name of the graph, or id of an assistant
        id: String,
        /// As a Mermaid flow chart
        #[arg(long)]
        mermaid: bool,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Carries out a command. `chat` may start a server, which `serve` does.
pub async fn run<S>(command: Command, settings: Settings, serve: S) -> anyhow::Result<()>
where
    S: AsyncFnOnce(Settings, super::Serving) -> anyhow::Result<()>,
{
    let mut screen = Screen::stdout();
    let screen = &mut screen;
    match command {
        Command::Chat(options) => chat::run(options, settings, serve, screen).await,
        Command::Threads { limit, remote } => {
            let found = threads::load(&client(&remote, &settings)?, limit).await?;
            show(&remote, screen, found, threads::draw)
        }
        Command::Tree { thread, remote } => {
            let found = tree::load(&client(&remote, &settings)?, &thread).await?;
            let draw = |tree: &Value, screen: &mut Screen| tree::draw(tree, &thread, screen);
            show(&remote, screen, found, draw)
        }
        Command::Tail {
            thread,
            earlier,
            remote,
        } => {
            let client = client(&remote, &settings)?;
            tail::follow(&client, &thread, earlier, remote.json, screen).await
        }
        Command::State {
            thread,
            checkpoint,
            remote,
        } => {
            let client = client(&remote, &settings)?;
            let found = state::load(&client, &thread, checkpoint.as_deref()).await?;
            show(&remote, screen, found, state::draw)
        }
        Command::Diff {
            thread,
            from,
            to,
            remote,
        } => {
            let client = client(&remote, &settings)?;
            let found = diff::load(&client, &thread, &from, &to).await?;
            show(&remote, screen, found, diff::draw)
        }
        Command::Graph {
            id,
            mermaid,
            remote,
        } => {
            let found = drawing::load(&client(&remote, &settings)?, &id).await?;
            let draw = if mermaid {
                drawing::mermaid
            } else {
                drawing::draw
            };
            show(&remote, screen, found, draw)
        }
    }
}

/// Writes what was found, for people or for machines.
fn show(
    remote: &Remote,
    screen: &mut Screen,
    found: Value,
    draw: impl FnOnce(&Value, &mut Screen) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    if remote.json {
        screen.json(&found)?;
    } else {
        draw(&found, screen)?;
    }
    Ok(())
}

/// The key in the environment.
pub fn key() -> Option<String> {
    let key = std::env::var("BACKSTITCH_API_KEY").ok();
    key.filter(|key| !key.is_empty())
}

/// A client of the server that the command means.
pub fn client(remote: &Remote, settings: &Settings) -> Result<Client, client::Error> {
    let address = remote.url.clone().unwrap_or_else(|| address(settings));
    Client::new(&address, key().as_deref())
}

/// The address at which a server with these settings can be called from here.
fn address(settings: &Settings) -> String {
    let host = match &*settings.host {
        "0.0.0.0" | "::" | "[::]" => "127.0.0.1".to_owned(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_owned(),
    };
    format!("http://{host}:{}", settings.port)
}
