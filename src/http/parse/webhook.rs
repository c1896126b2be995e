//! Checks of the URL of a webhook.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;

use crate::http::server::error::Error;

/// Checks the form of a webhook's URL and refuses literal addresses of this machine and of
/// private networks. What a name resolves to is checked when it is called.
///
/// # Errors
/// 422.
pub fn check(url: &str, allow_loopback: bool) -> Result<(), Error> {
    let uri: Uri = url
        .parse()
        .map_err(|_| Error::invalid("Webhook is not a valid URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(Error::invalid(
            "Webhook must be an absolute http or https URL",
        ));
    }
    let host = uri.host().unwrap_or_default();
    if host.is_empty() {
        return Err(Error::invalid("Webhook URL has no host"));
    }
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(Error::invalid("Webhook URL must not carry a user name"));
    }
    if allow_loopback {
        return Ok(());
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(Error::invalid("Webhook host blocked: loopback IP range"));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().ok().and_then(blocked) {
        Some(range) => Err(Error::invalid(format!(
            "Webhook host blocked: {range} IP range"
        ))),
        None => Ok(()),
    }
}

/// The range that no webhook may reach, if the address is in one.
pub fn blocked(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => blocked_v4(v4),
        IpAddr::V6(v6) => blocked_v6(v6),
    }
}

fn blocked_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let [a, b, ..] = v4.octets();
    match () {
        () if v4.is_loopback() => Some("loopback"),
        () if v4.is_private() => Some("private"),
        () if v4.is_link_local() => Some("link-local"),
        () if v4.is_multicast() || v4.is_broadcast() => Some("multicast"),
        () if a == 100 && (64..128).contains(&b) => Some("shared"),
        () if a == 0 || a >= 240 || v4.is_documentation() => Some("reserved"),
        () if a == 198 && (b == 18 || b == 19) => Some("reserved"),
        () => None,
    }
}

fn blocked_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let embedded = match v6.segments() {
        // NAT64 and 6to4 carry an IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        _ => v6.to_ipv4_mapped(),
    };
    match () {
        () if v6.is_loopback() => Some("loopback"),
        () if v6.is_unspecified() => Some("reserved"),
        () if v6.is_unique_local() => Some("private"),
        () if v6.is_unicast_link_local() => Some("link-local"),
        () if v6.is_multicast() => Some("multicast"),
        () => embedded.and_then(blocked_v4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_private_networks_are_refused() {
        for url in [
            "http://127.0.0.1:9/x",
            "http://localhost/x",
            "http://LOCALHOST./",
            "http://a.localhost",
            "http://[::1]/",
            "http://10.0.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/",
            "http://[::ffff:127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[fd00::1]/",
            "http://0.0.0.0/",
            "http://100.64.0.1/",
        ] {
            let error = check(url, false).unwrap_err();
            assert!(
                error.detail.starts_with("Webhook host blocked"),
                "{url}: {error}"
            );
            assert!(check(url, true).is_ok(), "{url}");
        }
        assert!(check("https://hooks.example/a?b=c", false).is_ok());
        assert!(check("https://93.184.216.34/", false).is_ok());
    }

    #[test]
    fn a_url_must_be_absolute_and_name_a_host() {
        for url in [
            "http://",
            "/hook",
            "hook",
            "ftp://x/",
            "http://u:p@x/",
            "http://a b/",
            "",
        ] {
            let error = check(url, true).unwrap_err();
            assert_eq!(error.status, 422, "{url}");
        }
    }
}
