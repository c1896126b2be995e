//! Bodies that are slow, unfinished, too many, or small as text and huge once parsed.

use std::io::Write;
use std::net::TcpStream;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::agent_thread;

use crate::siege::{MIB, Memory, Waits, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    a_body_of_empty_lists_is_refused_before_it_is_parsed,
    unfinished_bodies_of_one_client_leave_memory_for_another,
    a_body_that_comes_in_its_time_is_read_and_a_slower_one_refused,
);

fn a_body_of_empty_lists_is_refused_before_it_is_parsed(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let path = format!("/threads/{thread}/state");
    let watch = Watch::of(&server);
    let body = |inner: &str| format!("{{\"values\":{{\"log\":[{}0]}}}}", inner);
    let most = 15 << 20;
    for _ in 0..rounds() {
        for piece in ["[],", "0,", "[0],", "{\"\":0},", "\"\","] {
            let answer = client.post_text(&path, body(&piece.repeat(most / piece.len())));
            let detail = answer.refused(413);
            assert!(detail.contains("more values than the limit"), "{detail}");
        }
    }
    watch.held("16 MiB of small values", 120 * MIB);
    // As many values as there may be are parsed, within the memory for bodies.
    let thread = agent_thread(&client);
    let path = format!("/threads/{thread}/state");
    let body = |inner: &str| format!("{{\"values\":{{\"messages\":[{}0]}}}}", inner);
    for piece in ["[],", "[0],", "{\"\":0},"] {
        let values = if piece == "[]," { 199_000 } else { 99_000 };
        let answer = client.post_text(&path, body(&piece.repeat(values)));
        let detail = answer.refused(400);
        assert!(detail.contains("message"), "{detail}");
    }
}

fn unfinished_bodies_of_one_client_leave_memory_for_another(place: &Place) {
    let setup = Setup::example("reference_server");
    let server = place.start(setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"));
    let bob = Client::of(&server).with_key("key-b");
    bob.thread();
    let memory = Memory::of(&server);
    let address = server.base_url().trim_start_matches("http://");
    let piece = vec![b' '; 3 << 20];
    let mut open = Vec::new();
    for _ in 0..300 * rounds() {
        let mut socket = TcpStream::connect(address).unwrap();
        let timeout = Some(Duration::from_secs(20));
        socket.set_write_timeout(timeout).unwrap();
        let head = "POST /threads HTTP/1.1\r\nhost: localhost\r\nx-api-key: key-a\r\n\
                    content-length: 4000000\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        // Refused ones are closed before all of it was sent.
        socket.write_all(&piece).ok();
        open.push(socket);
    }
    let refused = open.iter().filter(|socket| is_refused(socket)).count();
    assert!(refused > 200, "{refused} were refused");
    // A large body of somebody else is read meanwhile.
    let large = format!("{{{}}}", " ".repeat(1 << 20));
    assert_eq!(bob.post_text("/threads", large).status, 200);
    Waits::of(&bob, 50).held("300 unfinished bodies", Duration::from_secs(1));
    drop(open);
    memory.held("300 unfinished bodies", 256 * MIB);
}

/// Whether the server has answered 503 with a time to come back.
fn is_refused(mut socket: &TcpStream) -> bool {
    use std::io::Read;
    let timeout = Duration::from_millis(10);
    socket.set_read_timeout(Some(timeout)).unwrap();
    let mut text = [0; 512];
    let Ok(read) = socket.read(&mut text) else {
        return false;
    };
    let text = String::from_utf8_lossy(&text[..read]);
    assert!(
        text.is_empty() || (text.contains(" 503 ") && text.contains("retry-after")),
        "{text}"
    );
    !text.is_empty()
}

fn a_body_that_comes_in_its_time_is_read_and_a_slower_one_refused(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_BODY_GRACE", "4")
        .env("BACKSTITCH_BODY_PACE", "2000");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = &Client::of(&server);
    // Four seconds, and one for each 2,000 bytes that came.
    let times = [(20, 4), (4001, 6)].map(|(bytes, time)| (bytes, Duration::from_secs(time)));
    let body = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    scope(|scope| {
        for (bytes, time) in times {
            scope.spawn(move || {
                let held = client.hold("POST", "/threads", &[], body(bytes).as_bytes());
                sleep(time - Duration::from_secs(2));
                assert_eq!(held.finish().status, 200, "{bytes} bytes");
            });
            scope.spawn(move || {
                let text = &body(bytes)[1..];
                let chunk = format!("{:x}\r\n{text}\r\n", bytes - 1);
                let begin = Instant::now();
                let mut refused = client.open_chunked("/threads", chunk.as_bytes());
                let took = begin.elapsed();
                println!("{bytes} bytes: refused after {took:?}");
                assert_eq!(refused.status, 408, "{bytes} bytes");
                assert!(
                    String::from_utf8(refused.rest())
                        .unwrap()
                        .contains("too slowly")
                );
                assert!(
                    took >= time && took < time + Duration::from_secs(5),
                    "{took:?}"
                );
            });
        }
    });
    watch.held("slow bodies", 64 * MIB);
}
