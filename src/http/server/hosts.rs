//! The names by which clients and web pages name a server, and which of them a server without keys
//! accepts.

use std::net::{IpAddr, Ipv6Addr};

use hyper::{
    HeaderMap, StatusCode, Uri,
    header::{HOST, HeaderValue},
};

use super::error::Error;

/// Paths that may be called by any name, since probes send an address.
const PROBED: [&str; 3] = ["/ok", "/live", "/ready"];
/// Whether a path is for those who only want to know how the server is.
pub fn is_probe(path: &str) -> bool {
    PROBED.contains(&path)
}

/// The setting that lists names.
pub const HOSTS_SETTING: &str = "BACKSTITCH_HOSTS";

/// A host name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// In lower case, an IPv6 address without its brackets.
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Parses `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = if let Some(bracketed) = text.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            (address.to_string(), rest)
        } else {
            let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_legal) {
                return None;
            }
            (name.trim_end_matches('.').to_ascii_lowercase(), rest)
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            None => return None,
            Some("") => None,
            Some(port) => Some(port.parse().ok()?),
        };
        Some(Self { name, port })
    }

    /// Whether only this machine is called so.
    pub fn is_loopback(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        self.name == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Whether both name one server, when a port that is not named is this one.
    fn is_equal(&self, other: &Self, default: Option<u16>) -> bool {
        self.name == other.name && self.port.or(default) == other.port.or(default)
    }
}

/// The origin of a web page, such as `https://app.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: Host,
}

impl Origin {
    /// Parses an origin; `null`, which pages without an origin send, is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, host) = text.split_once("://")?;
        let host = Host::parse(host)?;
        let scheme = scheme.to_ascii_lowercase();
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        (!scheme.is_empty() && scheme.bytes().all(is_legal)).then_some(Self { scheme, host })
    }

    /// The origin that a header names.
    pub fn of(header: &HeaderValue) -> Option<Self> {
        Self::parse(header.to_str().ok()?)
    }

    /// Whether the page comes from this machine. The scheme may be any: the pages that a desktop
    /// program carries with it have origins such as `tauri://localhost`, and no page of the web can.
    pub fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }

    /// Whether both are one origin.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.is_of(&other.host)
    }

    /// Whether the page comes from the server of this name. The scheme may differ: a proxy may
    /// speak TLS for the server.
    pub fn is_of(&self, host: &Host) -> bool {
        let default = match &*self.scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        self.host.is_equal(host, default)
    }
}

/// The names by which a server without keys may be called, besides those of the loopback interface.
///
/// A web page can make its own name mean this machine (DNS rebinding), and then counts as a page of
/// the server for the browser. Its requests still carry the page's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Any name.
    Any,
    /// These names; one without a port means all ports.
    Listed(Vec<Host>),
}

impl Hosts {
    /// Parses `*` or `name,name:port`.
    ///
    /// # Errors
    /// An entry that is no host.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "*" {
            return Ok(Self::Any);
        }
        let hosts = text.split(',').map(|entry| {
            let entry = entry.trim();
            let wrong = || format!("`{entry}` is no host; write `name`, `name:port` or only `*`");
            Host::parse(entry).ok_or_else(wrong)
        });
        Ok(Self::Listed(hosts.collect::<Result<_, _>>()?))
    }

    /// Whether a request to this path may name the server so.
    pub fn allow(&self, host: Option<&Host>, path: &str) -> bool {
        let Self::Listed(listed) = self else {
            return true;
        };
        let is_listed = |host: &Host| {
            listed
                .iter()
                .any(|known| known.name == host.name && (known.port.is_none() || known == host))
        };
        is_probe(path) || host.is_some_and(|host| host.is_loopback() || is_listed(host))
    }
}

/// The server that a request names; `None` if it names none.
///
/// # Errors
/// 400 for several hosts, and for what is no host.
pub fn of_request(uri: &Uri, headers: &HeaderMap) -> Result<Option<Host>, Error> {
    let wrong = |detail: &'static str| Error::new(StatusCode::BAD_REQUEST, detail);
    let mut named = headers.get_all(HOST).iter();
    let (header, second) = (named.next(), named.next());
    if second.is_some() {
        return Err(wrong("The request has more than one Host header"));
    }
    let parse = |text: &str| Host::parse(text).ok_or_else(|| wrong("The Host header is no host"));
    let header = match header {
        Some(text) => Some(parse(text.to_str().unwrap_or_default())?),
        None => None,
    };
    // HTTP/2 and requests by way of a proxy name it before the path.
    let authority = match uri.authority() {
        Some(authority) => Some(parse(authority.as_str())?),
        None => None,
    };
    match (authority, header) {
        (Some(authority), Some(header)) if authority != header => {
            Err(wrong("The request names two different hosts"))
        }
        (authority, header) => Ok(authority.or(header)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap_or_else(|| panic!("{text} is a host"))
    }

    #[test]
    fn names_of_this_machine_are_recognised_and_nothing_that_looks_like_them() {
        for text in [
            "localhost",
            "LOCALHOST:2024",
            "localhost.",
            "127.0.0.1:80",
            "127.1.2.3",
            "[::1]:2024",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(host(text).is_loopback(), "{text}");
        }
        for text in [
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
        ] {
            assert!(!host(text).is_loopback(), "{text}");
        }
        for text in [
            "",
            ":80",
            "a b",
            "user@localhost",
            "localhost:99999",
            "::1",
            "[::1",
            "[::1]x",
            "localhost/",
        ] {
            assert_eq!(Host::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_belongs_to_a_server_when_name_and_port_are_the_same() {
        let is = |origin: &str, server: &str| Origin::parse(origin).unwrap().is_of(&host(server));
        assert!(is("https://app.example", "app.example"));
        assert!(is("https://app.example", "app.example:443"));
        assert!(is("http://app.example:80", "App.Example"));
        assert!(is("https://localhost:2024", "localhost:2024"));
        assert!(!is("http://app.example", "app.example:443"));
        assert!(!is("http://localhost:3000", "localhost:2024"));
        assert!(!is("http://evil.example", "app.example"));
        for text in ["null", "", "app.example", "://a", "http://", "file://"] {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
    }

    #[test]
    fn listed_names_are_accepted_with_their_port_or_any() {
        let hosts = Hosts::parse("agents.internal, box:2024").unwrap();
        let allow = |name: &str| hosts.allow(Some(&host(name)), "/threads");
        assert!(allow("agents.internal:9") && allow("box:2024") && allow("localhost"));
        assert!(!allow("box") && !allow("box:1") && !allow("x.agents.internal"));
        assert!(!hosts.allow(None, "/threads") && hosts.allow(None, "/ready"));
        assert_eq!(Hosts::parse("*"), Ok(Hosts::Any));
        assert!(Hosts::parse("a,,b").is_err() && Hosts::parse("http://a").is_err());
    }
}
