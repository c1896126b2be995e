//! What a server says to people when it listens: its graphs, its storage, and what to try first.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use crate::{
    assistants::{Source, example},
    config::{LogFormat, Settings, Storage},
};

/// The port that commands in another terminal call, which has not the flags and variables of this one.
const DEFAULT_PORT: u16 = 2024;

/// What is known of the server before it listens.
pub(super) struct Greeting {
    /// Machines read the log, or nobody wants to read what is no warning.
    is_mute: bool,
    graphs: Vec<Arc<str>>,
    /// The graph to try first, and an input that it may have.
    first: Option<(Arc<str>, String)>,
    storage: String,
    has_keys: bool,
}

impl Greeting {
    /// `authenticates`: the program knows how to call it, and nobody else.
    pub(super) fn new(
        settings: &Settings,
        graphs: &[(Arc<str>, Source)],
        authenticates: bool,
    ) -> Self {
        let first = graphs
            .iter()
            .find(|(_, one)| one.graph.message_channel().is_some())
            .or(graphs.first())
            .filter(|_| !authenticates);
        Self {
            is_mute: settings.log_format == LogFormat::Json
                || !tracing::enabled!(tracing::Level::INFO),
            graphs: graphs.iter().map(|(name, _)| name.clone()).collect(),
            first: first.map(|(name, one)| (name.clone(), example::input(&one.graph).to_string())),
            storage: storage(&settings.storage),
            has_keys: !settings.api_keys.is_empty(),
        }
    }

    /// Writes it on stderr; who closed that does not want it.
    pub(super) fn print(&self, local: SocketAddr) {
        if !self.is_mute {
            let program = std::env::args().next();
            let text = self.text(local, program.as_deref().unwrap_or("backstitch"));
            io::stderr().lock().write_all(text.as_bytes()).ok();
        }
    }

    fn text(&self, mut local: SocketAddr, program: &str) -> String {
        if local.ip().is_unspecified() {
            local.set_ip([127, 0, 0, 1].into());
        }
        let url = format!("http://{local}");
        let there = if local.port() == DEFAULT_PORT {
            String::new()
        } else {
            format!(" --url {url}")
        };
        let graphs = match &*self.graphs {
            [] => "none".to_owned(),
            graphs => graphs.join(", "),
        };
        let key = if self.has_keys {
            " -H \"x-api-key: $BACKSTITCH_API_KEY\""
        } else {
            ""
        };
        let mut text = format!(
            "\n  graphs   {graphs}\n  storage  {}\n  manual   {url}/docs\n",
            self.storage
        );
        if let Some((graph, input)) = &self.first {
            let body = format!("{{\"assistant_id\": \"{graph}\", \"input\": {input}}}");
            text += &format!(
                "\n  Try in another terminal:\n    \
                 {program} chat {graph}{there}\n    \
                 curl -N {url}/runs/stream{key} -d {}\n",
                example::quoted(&body)
            );
        }
        text + "\n"
    }
}

/// The storage, and where it is; passwords stay out of it.
fn storage(storage: &Storage) -> String {
    match storage {
        Storage::Postgres(_) => "Postgres (DATABASE_URL)".to_owned(),
        Storage::Sqlite(folder) => {
            let path = std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from(folder));
            format!("SQLite in {}", path.display())
        }
        Storage::Memory => "a temporary file, which goes when the server ends".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(graphs: &[&str]) -> Greeting {
        let graphs: Vec<Arc<str>> = graphs.iter().map(|name| (*name).into()).collect();
        Greeting {
            is_mute: false,
            first: graphs
                .first()
                .map(|name| (name.clone(), r#"{"messages":"Hello"}"#.to_owned())),
            graphs,
            storage: "SQLite in /srv/.backstitch".to_owned(),
            has_keys: false,
        }
    }

    #[test]
    fn people_are_shown_what_to_try_at_an_address_that_they_can_call() {
        let local = "0.0.0.0:2024".parse().unwrap();
        let text = greeting(&["chat", "research"]).text(local, "./agents");
        insta::assert_snapshot!(text, @r#"

          graphs   chat, research
          storage  SQLite in /srv/.backstitch
          manual   http://127.0.0.1:2024/docs

          Try in another terminal:
            ./agents chat chat
            curl -N http://127.0.0.1:2024/runs/stream -d '{"assistant_id": "chat", "input": {"messages":"Hello"}}'
        "#);
    }

    #[test]
    fn another_port_and_keys_are_part_of_the_commands() {
        let mut greeting = greeting(&["chat"]);
        greeting.has_keys = true;
        let text = greeting.text("[::1]:3000".parse().unwrap(), "agents");
        assert!(
            text.contains("agents chat chat --url http://[::1]:3000\n"),
            "{text}"
        );
        assert!(text.contains("http://[::1]:3000/runs/stream"), "{text}");
        assert!(
            text.contains("-H \"x-api-key: $BACKSTITCH_API_KEY\""),
            "{text}"
        );
    }

    #[test]
    fn without_graphs_there_is_nothing_to_try() {
        let text = greeting(&[]).text("127.0.0.1:2024".parse().unwrap(), "agents");
        assert!(
            text.contains("graphs   none") && !text.contains("Try"),
            "{text}"
        );
    }
}
