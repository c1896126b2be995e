//! Web pages and machines elsewhere that reach for a server without keys.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http::Request;
use serde_json::json;
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::{Server, Setup};

use crate::http2::Connection;
use crate::siege::{MIB, Watch};

on_both_storages!(; postgres_in_long_form:
    a_foreign_page_is_refused_with_every_method_before_its_body_is_read,
    a_foreign_page_embeds_nothing_and_cancels_no_run_by_a_link,
    pages_of_this_machine_and_of_the_server_itself_may_call_in_open_mode,
    with_keys_no_other_page_may_call_unless_it_is_listed,
    any_page_may_call_where_the_setting_says_so,
    without_keys_only_names_of_this_machine_are_answered_to,
    a_server_without_keys_listens_on_this_machine_alone_unless_that_is_meant,
);

/// What many small requests may take.
const MOST: u64 = 64 * MIB;

/// Reads a whole answer to a head that is written as it stands, whose body never comes.
fn head(server: &Server, text: &str) -> String {
    let address = server.base_url().trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(20));
    socket.set_read_timeout(patience).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // What comes until the server closes, or waits for the next request.
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&answer).contains("\r\n\r\n") {
        let read = socket.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        answer.extend_from_slice(&piece[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    let text = answer.split(' ').nth(1);
    text.unwrap_or_else(|| panic!("no status: {answer:?}"))
        .parse()
        .unwrap()
}

fn from(client: &Client, origin: &str, method: &str, path: &str) -> Answer {
    client.send(method, path, &[("origin", origin)], b"{}")
}

/// Asks for a WebSocket, which one route has, with more lines in the head.
fn upgrade(server: &Server, thread: &str, more: &str) -> String {
    let host = server.base_url().trim_start_matches("http://");
    let text = format!(
        "GET /threads/{thread}/stream/events HTTP/1.1\r\nhost: {host}\r\n{more}\
         connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    head(server, &text)
}

fn a_foreign_page_is_refused_with_every_method_before_its_body_is_read(place: &Place) {
    let server = place.start(Setup::bundled());
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    let thread = client.thread();
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example:2024",
        "file://",
        "garbage",
    ] {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let path = format!("/threads/{thread}");
            let answer = head(
                &server,
                &format!(
                    "{method} {path} HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\
                     content-type: text/plain\r\ncontent-length: 100\r\n\r\n"
                ),
            );
            assert_eq!(status(&answer), 403, "{method} of {origin}: {answer}");
            assert!(!answer.contains("access-control-allow-origin"), "{answer}");
        }
        let answer = upgrade(&server, &thread, &format!("origin: {origin}\r\n"));
        assert_eq!(status(&answer), 403, "{answer}");
        let preflight = client.send(
            "OPTIONS",
            "/threads",
            &[
                ("origin", origin),
                ("access-control-request-method", "POST"),
                ("access-control-request-private-network", "true"),
            ],
            b"",
        );
        assert_eq!(preflight.status, 403);
        assert_eq!(
            preflight.header("access-control-allow-private-network"),
            None
        );
    }
    // Nothing of it was done.
    assert_eq!(client.get(&format!("/threads/{thread}")).status, 200);
    // What is no page, and those of this server, get their WebSockets.
    let own = format!("origin: {}\r\n", server.base_url());
    for more in [own.as_str(), ""] {
        let answer = upgrade(&server, &thread, more);
        assert_eq!(status(&answer), 101, "{answer}");
    }
    let log = server.output();
    assert_eq!(log.matches("https://evil.example").count(), 1, "{log}");
    assert!(log.contains("BACKSTITCH_CORS_ORIGINS"), "{log}");
    watch.held("requests of foreign pages", MOST);
}

/// Browsers send no origin for what a page embeds, and `cancel_on_disconnect` makes a read a write.
fn a_foreign_page_embeds_nothing_and_cancels_no_run_by_a_link(place: &Place) {
    let server = place.start(Setup::bundled());
    let watch = Watch::of(&server);
    let id = "01a20265-e4a8-7000-8000-000000000000";
    let joined = format!("/threads/{id}/runs/{id}/join");
    let get = |path: &str, mode: &str| {
        let lines = format!("sec-fetch-site: cross-site\r\nsec-fetch-mode: {mode}");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n\r\n");
        status(&head(&server, &request))
    };
    assert_eq!(get("/threads", "no-cors"), 403);
    assert_eq!(get(&joined, "no-cors"), 403);
    let cancelling = format!("{joined}?cancel_on_disconnect=1");
    assert_eq!(get(&cancelling, "no-cors"), 403);
    assert_eq!(get(&cancelling, "navigate"), 403);
    let encoded = cancelling.replace("cancel", "c%61ncel");
    assert_eq!(get(&encoded, "navigate"), 403);
    assert_eq!(get("/threads", "navigate"), 200);
    assert_eq!(get(&format!("/threads/{id}"), "navigate"), 404);
    watch.held("links of foreign pages", MOST);
}

fn pages_of_this_machine_and_of_the_server_itself_may_call_in_open_mode(place: &Place) {
    let server = place.start(Setup::bundled());
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1:5173",
        "http://[::1]",
        server.base_url(),
        &server.base_url().replace("http:", "https:"),
    ] {
        let answer = from(&client, origin, "POST", "/threads");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        let preflight = client.send(
            "OPTIONS",
            "/threads",
            &[
                ("origin", origin),
                ("access-control-request-method", "POST"),
                ("access-control-request-private-network", "true"),
            ],
            b"",
        );
        assert_eq!(preflight.status, 200);
        let granted = preflight.header("access-control-allow-private-network");
        assert_eq!(granted, Some("true"));
    }
    watch.held("pages of this machine", MOST);
}

fn with_keys_no_other_page_may_call_unless_it_is_listed(place: &Place) {
    let keys = Setup::bundled().env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = place.start(keys.clone());
    let client = Client::of(&server).with_key("key-a");
    assert_eq!(
        from(&client, "http://localhost:3000", "POST", "/threads").status,
        403
    );
    // A page that the server, or a proxy that speaks TLS for it, has delivered.
    let own = [("host", "app.example"), ("origin", "https://app.example")];
    let answer = head(
        &server,
        &format!(
            "GET /info HTTP/1.1\r\nhost: {}\r\norigin: {}\r\nx-api-key: key-a\r\n\r\n",
            own[0].1, own[1].1
        ),
    );
    assert_eq!(status(&answer), 200, "{answer}");

    let listed = "https://app.example, http://localhost:3000";
    let server = place.start(keys.env("BACKSTITCH_CORS_ORIGINS", listed));
    let client = Client::of(&server).with_key("key-a");
    let watch = Watch::beside(&server, &client);
    let thread = client.thread();
    let socket = |origin: &str| {
        let more = format!("origin: {origin}\r\nx-api-key: key-a\r\n");
        status(&upgrade(&server, &thread, &more))
    };
    for origin in ["https://app.example", "http://localhost:3000"] {
        assert_eq!(from(&client, origin, "POST", "/threads").status, 200);
        assert_eq!(socket(origin), 101);
    }
    for origin in ["http://app.example", "http://localhost:3001", "null"] {
        assert_eq!(from(&client, origin, "POST", "/threads").status, 403);
        assert_eq!(socket(origin), 403);
    }
    watch.held("pages beside keys", MOST);
}

fn any_page_may_call_where_the_setting_says_so(place: &Place) {
    let setup = Setup::bundled().env("BACKSTITCH_CORS_ORIGINS", "*");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = Client::of(&server);
    for origin in ["https://a.example", "null"] {
        let answer = from(&client, origin, "POST", "/threads");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    watch.held("any page", MOST);
}

/// The status of a request over HTTP/2 that names this host, and beside it perhaps another.
async fn named_over_http2(server: &Server, authority: &str, host: Option<&str>) -> u16 {
    let mut connection = Connection::open(server, 65_535).await;
    let mut request = Request::get(format!("http://{authority}/info"));
    if let Some(host) = host {
        request = request.header("host", host);
    }
    let request = request.body(()).unwrap();
    let (response, _) = connection.send.send_request(request, true).unwrap();
    response.await.unwrap().status().as_u16()
}

fn without_keys_only_names_of_this_machine_are_answered_to(place: &Place) {
    let server = place.start(Setup::bundled());
    let watch = Watch::of(&server);
    let get = |path: &str, host: &str| {
        status(&head(
            &server,
            &format!("GET {path} HTTP/1.1\r\n{host}\r\n"),
        ))
    };
    for good in ["localhost:2024", "LOCALHOST", "127.0.0.1", "[::1]:1"] {
        assert_eq!(get("/info", &format!("host: {good}\r\n")), 200, "{good}");
    }
    // A page that made its own name mean this machine is a page of the server for the browser.
    let rebound = "host: evil.example:2024\r\norigin: http://evil.example:2024\r\n";
    assert_eq!(get("/info", rebound), 403);
    for bad in ["evil.example", "10.0.0.7:2024", "0.0.0.0"] {
        assert_eq!(get("/info", &format!("host: {bad}\r\n")), 403, "{bad}");
        for probed in ["/ok", "/live", "/ready"] {
            assert_eq!(get(probed, &format!("host: {bad}\r\n")), 200, "{bad}");
        }
    }
    assert_eq!(get("/info", ""), 403);
    let doubled = "host: localhost\r\nhost: localhost\r\n";
    assert_eq!(get("/info", doubled), 400);
    assert_eq!(get("/ok", doubled), 400);
    assert_eq!(get("/info", "host: a b\r\n"), 400);
    assert_eq!(get("http://evil.example/info", "host: localhost\r\n"), 400);
    // HTTP/2 names it before the path, and may do so beside it.
    let over_http2 = |authority, host| block_on(named_over_http2(&server, authority, host));
    assert_eq!(over_http2("localhost:2024", None), 200);
    assert_eq!(over_http2("localhost", Some("localhost")), 200);
    assert_eq!(over_http2("evil.example", None), 403);
    assert_eq!(over_http2("evil.example", Some("localhost")), 400);
    assert_eq!(over_http2("localhost", Some("evil.example")), 400);
    let log = server.output();
    assert_eq!(log.matches("10.0.0.7").count(), 1, "{log}");
    assert!(log.contains("BACKSTITCH_HOSTS"), "{log}");

    for (hosts, own, foreign) in [("box, agents:80", 200, 403), ("*", 200, 200)] {
        let server = place.start(Setup::bundled().env("BACKSTITCH_HOSTS", hosts));
        let get = |host: &str| {
            let text = format!("GET /info HTTP/1.1\r\nhost: {host}\r\n\r\n");
            status(&head(&server, &text))
        };
        assert_eq!((get("box:2024"), get("agents:81")), (own, foreign));
    }
    // With keys, any name will do: the key says who may.
    let setup = Setup::bundled().env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = place.start(setup);
    let text = "GET /info HTTP/1.1\r\nhost: agents.example\r\nx-api-key: key-a\r\n\r\n";
    assert_eq!(status(&head(&server, text)), 200);
    assert_eq!(
        status(&head(
            &server,
            "GET /info HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n"
        )),
        400
    );
    watch.held("foreign names of hosts", MOST);
}

fn a_server_without_keys_listens_on_this_machine_alone_unless_that_is_meant(place: &Place) {
    for host in ["0.0.0.0", "::"] {
        let (status, log) = Setup::bundled().env("HOST", host).refused();
        assert!(!status.success());
        assert!(
            log.contains("BACKSTITCH_API_KEYS") && log.contains("BACKSTITCH_ALLOW_OPEN"),
            "{log}"
        );
    }
    let meant = Setup::bundled().env("HOST", "0.0.0.0");
    for setup in [
        meant.clone().env("BACKSTITCH_ALLOW_OPEN", "true"),
        meant.env("BACKSTITCH_API_KEYS", "ann=key-a"),
    ] {
        let server = place.start(setup);
        assert!(server.base_url().starts_with("http://0.0.0.0:"));
        assert_eq!(Client::of(&server).get("/ok").status, 200);
    }
    let localhost = place.start(Setup::bundled().env("HOST", "localhost"));
    let client = Client::of(&localhost);
    assert_eq!(client.post("/threads", &json!({})).status, 200);
    let wrong = Setup::bundled().env("BACKSTITCH_CORS_ORIGINS", "null");
    let (_, log) = wrong.refused();
    assert!(log.contains("no origin"), "{log}");
}
