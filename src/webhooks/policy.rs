//! Which URLs webhooks may have: their form when a run is created, their addresses at every try.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use super::address;

/// Longest URL: no HTTP client sends a longer one.
const LENGTH_MAX: usize = 65_534;
/// Longest name of a host, and longest part of it between two dots: DNS knows no longer ones.
const HOST_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Which receivers may be called.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Also those on this machine.
    pub allow_loopback: bool,
    /// Only those that are called over TLS.
    pub require_https: bool,
    /// Also these, whatever their addresses.
    pub trusted: Vec<Trusted>,
}

/// Receivers that may be called although their addresses are not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// The host of this name.
    Name(String),
    /// Every host with an address of this range.
    Range(IpNet),
}

/// Why a receiver is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not a URL at all.
    #[error("Webhook is not a valid URL: {0}")]
    Form(String),
    /// Relative, or of another scheme.
    #[error("Webhook must be an absolute http or https URL")]
    Scheme,
    /// The settings demand TLS.
    #[error("Webhook must be an https URL")]
    Plain,
    /// There is nobody to call.
    #[error("Webhook URL has no host")]
    NoHost,
    /// Credentials would be stored in the open, and confuse readers of the URL.
    #[error("Webhook URL must not carry a user name")]
    UserName,
    /// Nobody can be called there.
    #[error("Webhook URL must not have port 0")]
    Port,
    /// Longer than any client sends.
    #[error(
        "Webhook URL must not be longer than {LENGTH_MAX} bytes, written in ASCII with percent \
         signs"
    )]
    TooLong,
    /// No host can have such a name.
    #[error(
        "Webhook host must not be longer than {HOST_MAX} bytes, nor have more than {LABEL_MAX} \
         between two dots"
    )]
    HostTooLong,
    /// An address that is not public.
    #[error("Webhook host blocked: {0} IP range")]
    Blocked(&'static str),
}

impl Policy {
    /// Checks the form of a URL, and its address if it names one instead of a host. What a name
    /// resolves to is checked when it is called.
    ///
    /// # Errors
    /// Why it may not be called.
    pub fn check(&self, text: &str) -> Result<Url, Refused> {
        let url = parse(text)?;
        // It is stored and sent in this form, which may be longer than what the client wrote.
        if url.as_str().len() > LENGTH_MAX {
            return Err(Refused::TooLong);
        }
        if self.require_https && url.scheme() != "https" {
            return Err(Refused::Plain);
        }
        match url.host() {
            None => Err(Refused::NoHost),
            Some(Host::Ipv4(v4)) => self.check_address(None, v4.into()).map(|()| url),
            Some(Host::Ipv6(v6)) => self.check_address(None, v6.into()).map(|()| url),
            Some(Host::Domain(name)) => {
                let name = bare(name);
                if name.len() > HOST_MAX || name.split('.').any(|label| label.len() > LABEL_MAX) {
                    return Err(Refused::HostTooLong);
                }
                let is_local = name == "localhost" || name.ends_with(".localhost");
                if is_local && !self.allow_loopback && !self.trusts_name(&name) {
                    Err(Refused::Blocked("loopback"))
                } else {
                    Ok(url)
                }
            }
        }
    }

    /// Checks an address of a host before it is connected to.
    ///
    /// # Errors
    /// It is not public, and no setting allows it.
    pub fn check_address(&self, host: Option<&str>, address: IpAddr) -> Result<(), Refused> {
        let Some(range) = address::range(address) else {
            return Ok(());
        };
        let is_allowed = (range == "loopback" && self.allow_loopback)
            || host.is_some_and(|host| self.trusts_name(&bare(host)))
            || self.trusts_address(address.to_canonical());
        if is_allowed {
            Ok(())
        } else {
            Err(Refused::Blocked(range))
        }
    }

    fn trusts_name(&self, host: &str) -> bool {
        let mut trusted = self.trusted.iter();
        trusted.any(|one| matches!(one, Trusted::Name(name) if name == host))
    }

    fn trusts_address(&self, address: IpAddr) -> bool {
        let mut trusted = self.trusted.iter();
        trusted.any(|one| matches!(one, Trusted::Range(range) if range.contains(&address)))
    }
}

/// Names and address ranges, separated by commas.
///
/// # Errors
/// What is neither.
pub fn trusted(text: &str) -> Result<Vec<Trusted>, String> {
    let parts = text.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    let one = |part: &str| {
        if let Ok(range) = part.parse::<IpNet>() {
            return Ok(Trusted::Range(range));
        }
        if let Ok(address) = part.parse::<IpAddr>() {
            return Ok(Trusted::Range(address.into()));
        }
        match Host::parse(part) {
            Ok(Host::Domain(name)) if !part.contains('/') => Ok(Trusted::Name(bare(&name))),
            _ => Err(format!(
                "`{part}` is no host; write names and address ranges such as \
                 hooks.internal,10.0.0.0/8"
            )),
        }
    };
    parts.map(one).collect()
}

/// The form in which a URL is stored for its delivery; `None` if it is none.
pub fn normalized(text: &str) -> Option<String> {
    parse(text).ok().map(String::from)
}

/// Parses what a browser would repair as well, but only what is written in full.
fn parse(text: &str) -> Result<Url, Refused> {
    if text.len() > LENGTH_MAX {
        return Err(Refused::TooLong);
    }
    let is_odd = |char: char| char.is_whitespace() || char.is_control() || char == '\\';
    if text.is_empty() || text.contains(is_odd) {
        return Err(Refused::Form("it is empty or has odd characters".into()));
    }
    let (scheme, rest) = text.split_once("://").ok_or(Refused::Scheme)?;
    if !["http", "https"].contains(&&*scheme.to_ascii_lowercase()) {
        return Err(Refused::Scheme);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Refused::UserName);
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(Refused::NoHost);
    }
    let mut url = Url::parse(text).map_err(|error| Refused::Form(error.to_string()))?;
    if url.port() == Some(0) {
        return Err(Refused::Port);
    }
    // It is never sent.
    url.set_fragment(None);
    Ok(url)
}

fn bare(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
