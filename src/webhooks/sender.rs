//! Sending one delivery: a POST to an address that was checked at this very try.

use std::{
    error::Error as StdError,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::{
    Client, Response,
    dns::{Addrs, Name, Resolve, Resolving},
    header::CONTENT_TYPE,
    redirect,
};

use super::{Policy, SigningKey, policy::Refused};

/// How long a receiver may take to accept a connection, and for everything.
const CONNECT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(10);
/// What is read of a response that says success, so that the receiver can finish it.
const RESPONSE_BYTES: usize = 64 << 10;
/// How long that may take: the status alone decides.
const RESPONSE_TIME: Duration = Duration::from_secs(1);

/// Looks up the addresses of a host.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// All of them.
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own lookup.
#[derive(Debug)]
struct System;

#[async_trait]
impl Lookup for System {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Why a try failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The receiver may not be called.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The receiver did not say that it has taken the delivery. A redirect is not followed.
    #[error("the receiver answered with status {0}")]
    Status(u16),
    /// The receiver was not reached, or did not respond in time.
    #[error("{0}")]
    Transport(String),
    /// There is no HTTP client, for example because the machine has no certificates.
    #[error("no HTTP client: {0}")]
    Client(String),
}

/// One try of a delivery.
pub struct Message<'a> {
    /// The id that all tries of the delivery have.
    pub id: &'a str,
    /// The time of this try, in seconds since 1970.
    pub timestamp: i64,
    /// The trace that the receiver's work belongs to, as a header.
    pub traceparent: Option<&'a str>,
    /// What it sends, JSON.
    pub body: Vec<u8>,
}

/// Sends deliveries. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
}

struct Inner {
    policy: Arc<Policy>,
    key: Option<SigningKey>,
    lookup: Arc<dyn Lookup>,
    /// Made at the first delivery: most servers have none.
    client: OnceLock<Result<Client, String>>,
}

impl Sender {
    /// A sender to receivers that `policy` allows, which signs with `key`.
    pub fn new(policy: Arc<Policy>, key: Option<SigningKey>) -> Self {
        Self::with_lookup(policy, key, Arc::new(System))
    }

    /// [`new`](Self::new) with another way to look hosts up.
    pub fn with_lookup(
        policy: Arc<Policy>,
        key: Option<SigningKey>,
        lookup: Arc<dyn Lookup>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                policy,
                key,
                lookup,
                client: OnceLock::new(),
            }),
        }
    }

    /// Sends a message; succeeds when the receiver's status says that it has it.
    ///
    /// # Errors
    /// The receiver may not be called, was not reached, or did not take it.
    pub async fn send(&self, url: &str, message: Message<'_>) -> Result<(), Error> {
        let Message {
            id,
            timestamp,
            traceparent,
            body,
        } = message;
        // An address in the URL is connected to without a lookup.
        let url = self.inner.policy.check(url)?;
        let timestamp = timestamp.to_string();
        let mut request = self
            .client()?
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", &timestamp);
        if let Some(header) = traceparent {
            request = request.header("traceparent", header);
        }
        if let Some(key) = &self.inner.key {
            request = request.header("webhook-signature", key.sign(id, &timestamp, &body));
        }
        let response = request.body(body).send().await.map_err(transport)?;
        let status = response.status();
        if !status.is_success() {
            return Err(Error::Status(status.as_u16()));
        }
        // What it writes, and whether it ends, changes nothing.
        let _ = tokio::time::timeout(RESPONSE_TIME, read_some(response)).await;
        Ok(())
    }

    fn client(&self) -> Result<&Client, Error> {
        let made = self.inner.client.get_or_init(|| {
            crate::tls::set_provider();
            Client::builder()
                .user_agent(concat!("backstitch/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(Checked {
                    policy: self.inner.policy.clone(),
                    lookup: self.inner.lookup.clone(),
                })
                .redirect(redirect::Policy::none())
                .no_proxy()
                .referer(false)
                .connect_timeout(CONNECT)
                .timeout(LIMIT)
                // A connection that is used once more goes to an address that was checked before.
                .pool_max_idle_per_host(0)
                .build()
                .map_err(|error| chain(&error))
        });
        made.as_ref().map_err(|error| Error::Client(error.clone()))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// Looks hosts up for the client, which connects to these addresses and to no others.
struct Checked {
    policy: Arc<Policy>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy.clone(), self.lookup.clone());
        Box::pin(async move {
            let found = lookup.addresses(name.as_str()).await?;
            // One that is not public makes the host suspect as a whole.
            for address in &found {
                policy.check_address(Some(name.as_str()), *address)?;
            }
            let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

async fn read_some(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read >= RESPONSE_BYTES {
            return;
        }
    }
}

/// What a client's error says, with its reasons; the URL may contain a secret.
fn transport(error: reqwest::Error) -> Error {
    let mut source: Option<&dyn StdError> = Some(&error);
    while let Some(inner) = source {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return Error::Refused(refused.clone());
        }
        source = inner.source();
    }
    Error::Transport(chain(&error.without_url()))
}

fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests;
