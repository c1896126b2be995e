//! Who a client is, by the key it presents, and what it may do with the thread it names.

use std::{fmt, sync::Arc};

use hyper::{HeaderMap, Method, StatusCode};

use super::{Error, service::Call};
use crate::{id::ThreadId, tree::members::Level};

/// The principal of every request while nobody authenticates.
pub const LOCAL: &str = "local";
/// Paths that need no key.
const FREE: [&str; 4] = ["/", "/ok", "/live", "/ready"];
/// Requests that may create the thread they name.
const CREATING: [&[&str]; 4] = [
    &["messages"],
    &["runs"],
    &["runs", "stream"],
    &["runs", "wait"],
];

/// The keys that clients may present. It does not show them.
#[derive(Clone, Default)]
pub struct Keys(Vec<(Arc<str>, Arc<str>)>);

impl Keys {
    /// Keys by principal; none at all lets everybody in.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let pairs = pairs.into_iter();
        Self(pairs.map(|(who, key)| (who.into(), key.into())).collect())
    }

    /// Whether everybody is let in.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Who presents a key. The time it takes says nothing about the keys but their lengths.
    fn principal(&self, presented: &[u8]) -> Option<Arc<str>> {
        let mut found = None;
        for (who, key) in &self.0 {
            if same(key.as_bytes(), presented) {
                found = Some(who.clone());
            }
        }
        found
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(who, _)| who))
            .finish()
    }
}

/// Compares every byte, also after the first that differs.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a
        .iter()
        .zip(b)
        .fold(0_u8, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// Whose request it is.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Who.
    pub principal: Arc<str>,
    /// It presented a key; else everybody may do everything.
    pub is_known: bool,
}

/// Whose request it is; 401 without a good key where one is needed.
pub(super) fn client(keys: &Keys, headers: &HeaderMap, path: &str) -> Result<Client, Error> {
    if keys.is_open() || FREE.contains(&path) {
        return Ok(Client {
            principal: LOCAL.into(),
            is_known: false,
        });
    }
    let mut presented = headers.get_all("x-api-key").iter();
    let (Some(key), None) = (presented.next(), presented.next()) else {
        return Err(unknown("This server asks for a key: send it as x-api-key"));
    };
    let principal = keys.principal(key.as_bytes());
    Ok(Client {
        principal: principal.ok_or_else(|| unknown("The x-api-key is not one of this server"))?,
        is_known: true,
    })
}

fn unknown(detail: &'static str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, detail)
}

/// What a request to `/threads/{id}/...` takes, by what follows the id.
fn needed(method: &Method, rest: &[&str]) -> Level {
    match (method.as_str(), rest) {
        ("GET" | "HEAD", _) => Level::Reader,
        // Reading with a body; a copy is a thread of one's own.
        ("POST", ["history"] | ["state", "checkpoint"] | ["copy"]) => Level::Reader,
        ("DELETE", []) => Level::Owner,
        ("PUT" | "DELETE", ["members", ..]) => Level::Manager,
        _ => Level::Writer,
    }
}

/// Refuses a request that names a thread in its path which is not for this client.
pub(super) async fn admit(call: &Call, method: &Method, path: &str) -> Result<(), Error> {
    if !call.client.is_known {
        return Ok(());
    }
    let mut segments = path.split('/').skip(1);
    if segments.next() != Some("threads") {
        return Ok(());
    }
    let Ok(thread) = call.path.thread() else {
        // Not about one thread, or refused by its handler.
        return Ok(());
    };
    let rest: Vec<&str> = segments.skip(1).collect();
    let creates = *method == Method::POST && CREATING.contains(&&*rest);
    match call.level(thread).await? {
        None if creates && !call.exists(thread).await? => Ok(()),
        level => {
            allow(thread, level, needed(method, &rest)).map_err(|error| told(error, method, &rest))
        }
    }
}

/// Tells of somebody else's thread what the operation tells of one that is not there.
fn told(error: Error, method: &Method, rest: &[&str]) -> Error {
    match (method.as_str(), rest) {
        _ if error.status != StatusCode::NOT_FOUND => error,
        ("POST", ["runs"] | ["runs", "stream" | "wait"]) => Error::no_thread_or_assistant(),
        (_, [] | ["state" | "history" | "runs" | "copy" | "stream", ..]) => error,
        _ => error.coded(),
    }
}

fn allow(thread: ThreadId, level: Option<Level>, needed: Level) -> Result<(), Error> {
    match level {
        None => Err(Error::no_thread(thread)),
        Some(level) if level < needed => {
            let detail = format!("This takes the level {needed} on the thread, yours is {level}");
            Err(Error::new(StatusCode::FORBIDDEN, detail).with_code("forbidden"))
        }
        Some(_) => Ok(()),
    }
}

impl Call {
    /// Refuses the request unless its client has this level on a thread: 404 without any, 403
    /// below it.
    pub async fn authorize(&self, thread: ThreadId, needed: Level) -> Result<(), Error> {
        if !self.client.is_known {
            return Ok(());
        }
        allow(thread, self.level(thread).await?, needed)
    }

    /// Whose request it is.
    pub fn principal(&self) -> Arc<str> {
        self.client.principal.clone()
    }

    /// Whose threads lists show; `None` for all.
    pub fn viewer(&self) -> Option<Arc<str>> {
        self.client.is_known.then(|| self.principal())
    }

    /// The client's level on a thread; `None` too when there is no such thread.
    pub async fn level(&self, thread: ThreadId) -> Result<Option<Level>, Error> {
        self.api().level(thread, self.principal()).await
    }

    async fn exists(&self, thread: ThreadId) -> Result<bool, Error> {
        self.api().is_taken(thread).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presenting(keys: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for key in keys {
            headers.append("x-api-key", key.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_key_says_who_presents_it() {
        let keys = Keys::new([("ann", "k-1"), ("bob", "k-22"), ("ann", "k-3")]);
        let who = |presented: &[&str]| {
            let client = client(&keys, &presenting(presented), "/threads");
            client.map(|client| client.principal.to_string())
        };
        assert_eq!(who(&["k-1"]).unwrap(), "ann");
        assert_eq!(who(&["k-22"]).unwrap(), "bob");
        assert_eq!(who(&["k-3"]).unwrap(), "ann");
        for wrong in [
            &[][..],
            &[""],
            &["k-2"],
            &["k-222"],
            &["K-1"],
            &["k-1", "k-1"],
        ] {
            assert_eq!(who(wrong).unwrap_err().status, 401, "{wrong:?}");
        }
    }

    #[test]
    fn health_needs_no_key_and_without_keys_nothing_does() {
        let keys = Keys::new([("ann", "k")]);
        for path in FREE {
            assert!(client(&keys, &HeaderMap::new(), path).is_ok());
        }
        for path in ["/okay", "/ok/", "/info", "/threads", "/nowhere"] {
            assert!(client(&keys, &HeaderMap::new(), path).is_err(), "{path}");
        }
        let open = client(&Keys::default(), &presenting(&["any"]), "/threads").unwrap();
        assert_eq!((&*open.principal, open.is_known), (LOCAL, false));
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let shown = format!("{:?}", Keys::new([("ann", "secret")]));
        assert!(shown.contains("ann") && !shown.contains("secret"));
    }

    #[test]
    fn what_changes_a_thread_takes_more_than_reading_it() {
        let of = |method: &str, rest: &[&str]| needed(&method.parse().unwrap(), rest);
        assert_eq!(of("GET", &["messages"]), Level::Reader);
        assert_eq!(of("POST", &["history"]), Level::Reader);
        assert_eq!(of("POST", &["state", "checkpoint"]), Level::Reader);
        assert_eq!(of("POST", &["state"]), Level::Writer);
        assert_eq!(of("POST", &["fork"]), Level::Writer);
        assert_eq!(of("POST", &["runs", "x", "cancel"]), Level::Writer);
        assert_eq!(of("DELETE", &["runs", "x"]), Level::Writer);
        assert_eq!(of("PATCH", &[]), Level::Writer);
        assert_eq!(of("PUT", &["members", "bob"]), Level::Manager);
        assert_eq!(of("DELETE", &["members", "bob"]), Level::Manager);
        assert_eq!(of("GET", &["members"]), Level::Reader);
        assert_eq!(of("DELETE", &[]), Level::Owner);
    }
}
