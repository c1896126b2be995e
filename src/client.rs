//! An HTTP client of a server like this one, for the commands that people type.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;
use sse_stream::SseStream;

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a response may be silent; streams are never so for long.
const SILENCE: Duration = Duration::from_secs(120);
/// The largest response that is read as a whole.
const LARGEST: usize = 64 << 20;

/// Why a request has no result. The text is for the person who typed the command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("`{address}` is no address of a server; write one like http://127.0.0.1:2024")]
    Address {
        /// What was written.
        address: String,
    },
    /// The key cannot be sent.
    #[error("BACKSTITCH_API_KEY has characters that no key can have")]
    Key,
    /// The HTTP client cannot be set up.
    #[error("no HTTP client: {0}")]
    Setup(String),
    /// Nobody listens there.
    #[error("no server at {address} ({reason}); start one, or name another with --url")]
    NoServer {
        /// The address.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The server wants another key, or none was sent.
    #[error("the server refuses the key: {detail}; set BACKSTITCH_API_KEY to one of its keys")]
    WrongKey {
        /// What the server says.
        detail: String,
    },
    /// The server refuses the request.
    #[error("{detail} ({status})")]
    Refused {
        /// Its status.
        status: u16,
        /// What the server says.
        detail: String,
    },
    /// The response is not what such a server sends.
    #[error("{address} is no server of this kind: {reason}")]
    Foreign {
        /// The address.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// The connection broke.
    #[error("the server at {address} broke off: {reason}")]
    Broken {
        /// The address.
        address: String,
        /// What the system says.
        reason: String,
    },
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// A client of one server, with one key.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    address: String,
    headers: HeaderMap,
}

impl Client {
    /// A client of the server at this address.
    ///
    /// # Errors
    /// The address or the key cannot be used.
    pub fn new(address: &str, key: Option<&str>) -> Result<Self, Error> {
        let wrong = || Error::Address {
            address: address.to_owned(),
        };
        let url = Url::parse(address).map_err(|_| wrong())?;
        let host = url.host_str().ok_or_else(wrong)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut key = HeaderValue::from_str(key).map_err(|_| Error::Key)?;
            key.set_sensitive(true);
            headers.insert("x-api-key", key);
        }
        crate::tls::set_provider();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // The key is for this server alone.
            .redirect(Policy::none());
        // No proxy leads to this machine.
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            http = http.no_proxy();
        }
        Ok(Self {
            http: http.build().map_err(|error| Error::Setup(reason(&error)))?,
            address: address.trim_end_matches('/').to_owned(),
            headers,
        })
    }

    /// The address of its server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A GET of JSON.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        let response = self.send(Method::GET, path, None, &[]).await?;
        self.read(response).await
    }

    /// A POST of JSON.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let response = self.send(Method::POST, path, Some(body), &[]).await?;
        self.read(response).await
    }

    /// The events that a POST, or a GET if there is no body, responds with.
    ///
    /// # Errors
    /// See [`Error`]; a stream that breaks off ends with an error.
    pub async fn stream(
        &self,
        path: &str,
        body: Option<&Value>,
        after: Option<u64>,
    ) -> Result<impl Stream<Item = Result<Event, Error>> + Unpin + use<>, Error> {
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let mut headers = vec![(ACCEPT.as_str(), "text/event-stream".to_owned())];
        headers.extend(after.map(|after| ("last-event-id", after.to_string())));
        let response = self.send(method, path, body, &headers).await?;
        let bytes = stream::try_unfold(response, async |mut response: Response| {
            let chunk = response.chunk().await?;
            Ok::<_, reqwest::Error>(chunk.map(|chunk| (chunk, response)))
        });
        let address = self.address.clone();
        let events = SseStream::from_bytes_stream(bytes).map(move |event| {
            let event = event.map_err(|error| Error::Broken {
                address: address.clone(),
                reason: error.to_string(),
            })?;
            let data = event.data.as_deref().map(serde_json::from_str);
            let data = data.transpose().map_err(|error| Error::Foreign {
                address: address.clone(),
                reason: format!("an event is no JSON: {error}"),
            })?;
            Ok(data.map(|data| Event {
                name: event.event.unwrap_or_default(),
                data,
            }))
        });
        // Comments and hints for reconnecting have no data.
        Ok(Box::pin(events.filter_map(async |event| event.transpose())))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, String)],
    ) -> Result<Response, Error> {
        let url = format!("{}{path}", self.address);
        let mut request = self.http.request(method, url).headers(self.headers.clone());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let response = request.send().await.map_err(|error| {
            let (address, reason) = (self.address.clone(), reason(&error));
            if error.is_connect() {
                Error::NoServer { address, reason }
            } else {
                Error::Broken { address, reason }
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let detail = match self.read(response).await {
            Ok(body) => match &body["detail"] {
                Value::String(detail) => detail.clone(),
                _ => body.to_string(),
            },
            Err(_) => status.canonical_reason().unwrap_or("refused").to_owned(),
        };
        if status == StatusCode::UNAUTHORIZED {
            return Err(Error::WrongKey { detail });
        }
        Err(Error::Refused {
            status: status.as_u16(),
            detail,
        })
    }

    async fn read(&self, mut response: Response) -> Result<Value, Error> {
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await.map_err(|error| Error::Broken {
                address: self.address.clone(),
                reason: reason(&error),
            })?;
            let Some(chunk) = chunk else { break };
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                return Err(Error::Foreign {
                    address: self.address.clone(),
                    reason: format!("the response has more than {} MiB", LARGEST >> 20),
                });
            }
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| Error::Foreign {
            address: self.address.clone(),
            reason: format!("the response is no JSON: {error}"),
        })
    }
}

/// A text as one segment of a path.
pub fn segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The innermost reason, without the address that the message has already.
fn reason(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
