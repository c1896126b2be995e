//! Who a client is, by the key it presents.

use std::{collections::BTreeSet, fmt, sync::Arc};

use hyper::{HeaderMap, StatusCode, http::request::Parts};

use super::{
    authenticate::Authentication,
    error::Error,
    principal::{Principal, Role},
};
use crate::tree::members::LOCAL_PRINCIPAL;

/// Paths that need no key.
const FREE: [&str; 4] = ["/", "/ok", "/live", "/ready"];

/// The keys that clients may present. It does not show them.
#[derive(Clone, Default)]
pub struct Keys(Vec<(Arc<str>, Arc<str>)>);

impl Keys {
    /// Keys by principal; without any everybody may call.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let pairs = pairs.into_iter();
        Self(pairs.map(|(who, key)| (who.into(), key.into())).collect())
    }

    /// Whether everybody may call without a key.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The principal of a key. The time that the search takes depends on nothing of the keys but their
    /// lengths.
    fn principal(&self, presented: &[u8]) -> Option<Arc<str>> {
        let mut found = None;
        for (who, key) in &self.0 {
            if equal_in_constant_time(key.as_bytes(), presented) {
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
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let differing = a
        .iter()
        .zip(b)
        .fold(0_u8, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// The client of a request.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its name.
    pub principal: Arc<str>,
    /// It is known who it is; else everybody may do everything.
    pub is_known: bool,
    /// What the program that serves lets it do; with keys the settings say it.
    pub(in crate::http) role: Option<Role>,
}

impl Client {
    /// A client that needs no key.
    pub fn local() -> Self {
        Self {
            principal: LOCAL_PRINCIPAL.into(),
            is_known: false,
            role: None,
        }
    }

    /// A client that the program that serves has let in.
    pub(in crate::http) fn of(principal: &Principal) -> Self {
        Self {
            principal: principal.name().clone(),
            is_known: true,
            role: Some(principal.role()),
        }
    }

    /// Whether it may read, and nothing else.
    pub(in crate::http) fn only_reads(&self) -> bool {
        self.role == Some(Role::Reads)
    }

    /// Whether it administers the server, which principals may whom the settings or the program name.
    pub(in crate::http) fn administers(&self, admins: &BTreeSet<Arc<str>>) -> bool {
        self.role == Some(Role::Administers) || admins.contains(&self.principal)
    }

    /// As handlers of the program's own routes find it.
    pub(in crate::http) fn to_principal(&self) -> Principal {
        let principal = Principal::new(self.principal.clone());
        match self.role {
            Some(Role::Reads) => principal.reads_only(),
            Some(Role::Administers) => principal.administers(),
            Some(Role::Acts) | None => principal,
        }
    }
}

/// The client of a request, as the program that serves finds it out; without its authentication, by
/// its key.
///
/// # Errors
/// 401 without a valid key where one is needed; with an authentication, what that fails with.
pub async fn authenticate(
    authentication: Option<&Authentication>,
    keys: &Keys,
    head: &Parts,
) -> Result<Client, Error> {
    let path = head.uri.path();
    match authentication {
        Some(authentication) if !FREE.contains(&path) => {
            let principal = authentication.principal(head.clone()).await?;
            Ok(Client::of(&principal))
        }
        Some(_) => Ok(Client::local()),
        None => client(keys, &head.headers, path),
    }
}

/// The client of a request; 401 without a valid key where one is needed.
fn client(keys: &Keys, headers: &HeaderMap, path: &str) -> Result<Client, Error> {
    if keys.is_open() || FREE.contains(&path) {
        return Ok(Client::local());
    }
    let mut presented = headers.get_all("x-api-key").iter();
    let (Some(key), None) = (presented.next(), presented.next()) else {
        return Err(unknown("This server asks for a key: send it as x-api-key"));
    };
    let principal = keys.principal(key.as_bytes());
    Ok(Client {
        principal: principal.ok_or_else(|| unknown("The x-api-key is not one of this server"))?,
        is_known: true,
        role: None,
    })
}

fn unknown(detail: &'static str) -> Error {
    Error::new(StatusCode::UNAUTHORIZED, detail)
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
        assert_eq!((&*open.principal, open.is_known), (LOCAL_PRINCIPAL, false));
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let shown = format!("{:?}", Keys::new([("ann", "secret")]));
        assert!(shown.contains("ann") && !shown.contains("secret"));
    }
}
