//! URLs that are refused, in every form an address can be written in, and those that settings allow.

use super::*;

fn refusal(policy: &Policy, url: &str) -> String {
    match policy.check(url) {
        Ok(url) => panic!("{url} was not refused"),
        Err(refused) => refused.to_string(),
    }
}

#[test]
fn addresses_of_this_machine_and_of_private_networks_are_refused_in_every_form() {
    for (url, range) in [
        ("http://127.0.0.1:9/x", "loopback"),
        ("http://127.1/", "loopback"),
        ("http://2130706433/", "loopback"),
        ("http://0177.0.0.1/", "loopback"),
        ("http://017700000001/", "loopback"),
        ("http://0x7f.0.0.1/", "loopback"),
        ("http://0x7f000001/", "loopback"),
        ("http://127.0.0.1./", "loopback"),
        ("http://１２７.０.０.１/", "loopback"),
        ("http://127%2e0.0.1/", "loopback"),
        ("http://localhost/x", "loopback"),
        ("http://LOCALHOST./", "loopback"),
        ("http://a.localhost", "loopback"),
        ("http://[::1]/", "loopback"),
        ("http://[0:0:0:0:0:0:0:1]/", "loopback"),
        ("http://[::ffff:127.0.0.1]/", "loopback"),
        ("http://[::127.0.0.1]/", "loopback"),
        ("http://[64:ff9b::7f00:1]/", "loopback"),
        ("http://[64:ff9b::127.0.0.1]/", "loopback"),
        ("http://[2002:7f00:1::]/", "loopback"),
        ("http://10.0.0.1/", "private"),
        ("http://192.168.1.1/", "private"),
        ("http://3232235777/", "private"),
        ("http://012.0.0.1/", "private"),
        ("http://[fd00::1]/", "private"),
        ("http://[fd00:ec2::254]/", "private"),
        ("http://[64:ff9b:1::1]/", "private"),
        ("http://169.254.169.254/latest/meta-data", "link-local"),
        ("http://2852039166/", "link-local"),
        ("http://0xa9fea9fe/", "link-local"),
        ("http://[64:ff9b::a9fe:a9fe]/", "link-local"),
        ("http://[fe80::1]/", "link-local"),
        ("http://0.0.0.0/", "reserved"),
        ("http://0/", "reserved"),
        ("http://[::]/", "reserved"),
        ("http://100.64.0.1/", "shared"),
    ] {
        let detail = refusal(&Policy::default(), url);
        assert_eq!(
            detail,
            format!("Webhook host blocked: {range} IP range"),
            "{url}"
        );
    }
    for url in [
        "https://hooks.example/a?b=c",
        "https://93.184.216.34/",
        "HTTP://hooks.example:8080",
        "https://xn--bcher-kva.example/",
        "https://bücher.example/",
    ] {
        assert!(Policy::default().check(url).is_ok(), "{url}");
    }
}

#[test]
fn a_url_must_be_absolute_and_name_a_host() {
    let long = format!("http://hooks.example/{}", "x".repeat(LENGTH_MAX));
    // Each of these letters is six characters of the URL that is sent.
    let umlauts = format!("http://hooks.example/{}", "ü".repeat(LENGTH_MAX / 6));
    let label = format!("http://{}.example/", "x".repeat(LABEL_MAX + 1));
    let host = format!("http://{}example/", "abc.".repeat(HOST_MAX / 4));
    let letters = format!("http://{}.example/", "ü".repeat(LABEL_MAX));
    for (url, reason) in [
        ("http://", "no host"),
        ("http:///hook", "no host"),
        ("http://?x=1", "no host"),
        ("http://:80/", "no host"),
        ("/hook", "absolute"),
        ("//hooks.example/hook", "absolute"),
        ("hook", "absolute"),
        ("http:hooks.example", "absolute"),
        ("ftp://hooks.example/", "absolute"),
        ("file:///etc/passwd", "absolute"),
        ("gopher://hooks.example/", "absolute"),
        ("javascript://hooks.example/", "absolute"),
        ("http://u:p@hooks.example/", "user name"),
        ("http://u@hooks.example/", "user name"),
        ("http://@hooks.example/", "user name"),
        ("http://hooks.example:0/", "port 0"),
        ("http://hooks.example:99999/", "valid URL"),
        ("http://hooks.example:x/", "valid URL"),
        ("http://a b/", "odd characters"),
        ("http://a\\@b/", "odd characters"),
        (" http://hooks.example/", "odd characters"),
        ("http://hooks.example/\n", "odd characters"),
        ("http://hooks.example/\0", "odd characters"),
        ("http://[::1/", "valid URL"),
        ("http://[fe80::1%25eth0]/", "valid URL"),
        ("http://1.2.3.4.5/", "valid URL"),
        ("", "empty"),
        (&long, "longer than"),
        (&umlauts, "longer than"),
        (&label, "between two dots"),
        (&host, "between two dots"),
        (&letters, "between two dots"),
    ] {
        let open = Policy {
            allow_loopback: true,
            ..Policy::default()
        };
        let detail = refusal(&open, url);
        assert!(detail.contains(reason), "{url}: {detail}");
    }
}

#[test]
fn loopback_is_allowed_alone_and_https_demanded() {
    let local = Policy {
        allow_loopback: true,
        ..Policy::default()
    };
    for url in [
        "http://127.0.0.1:9/",
        "http://localhost/",
        "http://[::1]/",
        "http://2130706433/",
    ] {
        assert!(local.check(url).is_ok(), "{url}");
    }
    for url in [
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "http://0.0.0.0/",
    ] {
        assert!(refusal(&local, url).contains("blocked"), "{url}");
    }
    let secure = Policy {
        require_https: true,
        ..Policy::default()
    };
    assert!(refusal(&secure, "http://hooks.example/").contains("https"));
    assert!(secure.check("https://hooks.example/").is_ok());
}

#[test]
fn names_and_ranges_of_private_receivers_are_trusted() {
    let policy = Policy {
        trusted: trusted("Hooks.Internal, 10.1.0.0/16,192.168.7.7, fd00:1::/32").unwrap(),
        ..Policy::default()
    };
    for url in [
        "http://10.1.2.3/",
        "http://192.168.7.7/",
        "http://[fd00:1::5]/",
        "http://[::ffff:10.1.2.3]/",
    ] {
        assert!(policy.check(url).is_ok(), "{url}");
    }
    for url in [
        "http://10.2.0.1/",
        "http://192.168.7.8/",
        "http://[fd00:2::5]/",
        "http://127.0.0.1/",
    ] {
        assert!(refusal(&policy, url).contains("blocked"), "{url}");
    }
    let address = "172.16.0.9".parse().unwrap();
    assert!(
        policy
            .check_address(Some("hooks.internal"), address)
            .is_ok()
    );
    assert!(
        policy
            .check_address(Some("HOOKS.internal."), address)
            .is_ok()
    );
    assert!(
        policy
            .check_address(Some("other.internal"), address)
            .is_err()
    );
    for wrong in ["10.0.0.0/99", "a b", "http://x", "u@x", "x/y"] {
        assert!(trusted(wrong).unwrap_err().contains(wrong), "{wrong}");
    }
}

#[test]
fn what_is_stored_for_the_delivery_has_its_authority_in_full() {
    let stored = |text| normalized(text).unwrap();
    assert_eq!(
        stored("HTTP://Hooks.Example?x=1#y"),
        "http://hooks.example/?x=1"
    );
    assert_eq!(
        stored("https://hooks.example:443/a%20b?c=d&e"),
        "https://hooks.example/a%20b?c=d&e"
    );
    assert_eq!(
        stored("http://bücher.example:81"),
        "http://xn--bcher-kva.example:81/"
    );
    assert_eq!(normalized("nothing"), None);
}

#[test]
fn the_longest_host_that_dns_knows_is_accepted() {
    let label = "x".repeat(LABEL_MAX);
    let host = format!("{label}.{label}.{label}.{}", "x".repeat(HOST_MAX - 3 * 64));
    for dot in ["", "."] {
        let url = format!("https://{host}{dot}:8443/hook");
        assert!(Policy::default().check(&url).is_ok(), "{url}");
    }
    let url = format!("https://{host}x/hook");
    assert_eq!(Policy::default().check(&url), Err(Refused::HostTooLong));
}
