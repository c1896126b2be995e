//! Tools of MCP servers (Model Context Protocol): a program connects to a server, and models may
//! call the tools that it offers.

use std::{env, fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Tool, address::without_password};

mod child;
mod link;
mod offer;
mod outcome;

pub(crate) use child::end_all;

/// How long a server may take to begin, and for each call.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest message of a server, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// A server that offers tools: a web address, or a program that runs as a child process.
///
/// ```no_run
/// use std::sync::Arc;
/// use backstitch::{llm::mcp, prelude::*};
///
/// # async fn connect() -> Result<()> {
/// let files = mcp::Server::command("npx")
///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"])
///     .inherit("PATH")
///     .connect()
///     .await?;
/// let search = mcp::Server::http("https://search.example/mcp")
///     .header("authorization", "Bearer <key>")
///     .prefix("search_")
///     .connect()
///     .await?;
/// let tools: Vec<Arc<Tool>> = [files.tools(), search.tools()].concat();
/// # let _: fn(Vec<Arc<Tool>>) = |tools| { let _ = tool_node(tools); };
/// # Ok(())
/// # }
/// ```
///
/// What goes wrong in a call (the server is down, silent, or reports an error; its message is too
/// large) is the result of that call: a [`tool_node`](super::tool_node) shows it to the model, and
/// the run goes on.
pub struct Server {
    target: Target,
    prefix: String,
    timeout: Duration,
    most_bytes: usize,
    /// What was set that this kind of server does not have.
    misfit: Option<&'static str>,
}

enum Target {
    Http {
        url: String,
        headers: Vec<(String, String)>,
    },
    Command(child::Program),
}

impl Server {
    /// The server at a web address, by streamable HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        let headers = Vec::new();
        let url = url.into();
        Self::new(Target::Http { url, headers })
    }

    /// A program that speaks MCP on its standard input and output. It starts with an empty
    /// environment: without `PATH` too, which [`Server::inherit`] passes on. What it writes to its
    /// standard error is logged at the level `debug`.
    ///
    /// When it ends by itself it is started anew, after 0.1 s first and up to 30 s later. It ends,
    /// with the processes that it started, once its [`Connection`] and all its tools are dropped,
    /// and with this program.
    pub fn command(program: impl Into<String>) -> Self {
        Self::new(Target::Command(child::Program::new(program.into())))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            prefix: String::new(),
            timeout: TIMEOUT,
            most_bytes: MOST_BYTES,
            misfit: None,
        }
    }

    /// Adds arguments of the program; of a web address [`Server::connect`] refuses them.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        match &mut self.target {
            Target::Command(program) => program.args.extend(args.into_iter().map(Into::into)),
            Target::Http { .. } => self.misfit = Some("a web address takes no arguments"),
        }
        self
    }

    /// Sets a variable in the program's environment; of a web address [`Server::connect`] refuses it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.target {
            Target::Command(program) => program.env.push((name.into(), value.into())),
            Target::Http { .. } => self.misfit = Some("a web address has no environment"),
        }
        self
    }

    /// Passes a variable of this process's environment on to the program, if it is set.
    #[must_use]
    pub fn inherit(self, name: &str) -> Self {
        match env::var(name) {
            Ok(value) => self.env(name, value),
            Err(_) => self,
        }
    }

    /// Adds a header to every request, such as `authorization`; of a program [`Server::connect`]
    /// refuses it. Values are never logged.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        match &mut self.target {
            Target::Http { headers, .. } => headers.push((name.into(), value.into())),
            Target::Command(_) => self.misfit = Some("a program takes no headers"),
        }
        self
    }

    /// Puts this text before the name of each tool, so that the tools of two servers differ.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long the server may take to begin, and for each call (60 s).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The largest message that the server may send, in bytes (4 MiB).
    #[must_use]
    pub fn most_bytes(mut self, bytes: usize) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Connects to the server, or starts the program, and asks which tools it offers. They are
    /// asked for once: what a server adds later, it has after a new connection.
    ///
    /// # Errors
    /// The program or the address cannot be used, something was set that it does not have, the server does not begin in time, speaks
    /// another protocol or offers more than 512 tools.
    pub async fn connect(self) -> Result<Connection, Error> {
        let name = self.target.to_string();
        let failed = |reason: String| Error {
            server: name.clone(),
            reason,
        };
        if let Some(misfit) = self.misfit {
            return Err(failed(misfit.to_owned()));
        }
        let target = match self.target {
            Target::Http { url, headers } => {
                let headers = header_map(&headers).map_err(failed)?;
                link::Target::Http { url, headers }
            }
            Target::Command(program) => link::Target::Command(program),
        };
        let limits = link::Limits {
            timeout: self.timeout,
            most_bytes: self.most_bytes,
        };
        let link = link::Link::open(name.clone().into(), target, limits)
            .await
            .map_err(failed)?;
        let tools = offer::tools(&link, &self.prefix).await.map_err(failed)?;
        Ok(Connection { tools, link })
    }
}

/// Headers as they are on the wire; the error names the one that cannot be.
fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name)
            .map_err(|_| format!("`{}` cannot be a header", name.escape_debug()))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of the header `{header}` cannot be one"))?;
        value.set_sensitive(true);
        map.append(header, value);
    }
    Ok(map)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { url, .. } => f.write_str(without_password(url)),
            Self::Command(program) => f.write_str(&program.path),
        }
    }
}

/// A server that could not be connected to, or whose tools could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("the MCP server `{server}`: {reason}")]
pub struct Error {
    server: String,
    reason: String,
}

/// A server that a program is connected to. It and its tools hold the connection together.
#[derive(Clone)]
pub struct Connection {
    tools: Vec<Arc<Tool>>,
    link: Arc<link::Link>,
}

impl Connection {
    /// The tools that the server offered when the connection began. Their names are what models
    /// take: other characters than letters, digits, `-` and `_` are replaced by `_`.
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.tools.clone()
    }

    /// Ends the connection: a program is asked to end by closing its input and is killed when it
    /// has not ended 2 s later. Calls after this fail.
    pub async fn close(&self) {
        self.link.close().await;
    }
}

#[cfg(test)]
mod tests;
