//! Clients that send frames of HTTP/2 no client needs: headers without end, pings and settings without
//! number, and requests that make the server reset them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Server;

use crate::siege::{MIB, Memory, Waits, rounds};

on_both_storages!(
    headers_without_end_are_hung_up_on,
    requests_that_the_server_is_made_to_reset_are_hung_up_on,
    pings_whose_answers_nobody_reads_take_no_memory,
    settings_whose_answers_nobody_reads_take_no_memory,
);

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;

/// A connection whose client writes frames as it likes.
struct Raw {
    socket: TcpStream,
    address: String,
}

impl Raw {
    fn open(server: &Server) -> Self {
        let address = server.base_url().trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&address).unwrap();
        socket
            .set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut raw = Self { socket, address };
        raw.socket
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        assert!(raw.send(&frame(SETTINGS, 0, 0, &[])));
        raw
    }

    /// False once the server takes no more, or has hung up.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// The head of a request that has no body.
    fn request(&self, path: &str) -> Vec<u8> {
        // GET, http, and two literals: the path and the authority.
        let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend(path.as_bytes());
        block.extend([0x01, u8::try_from(self.address.len()).unwrap()]);
        block.extend(self.address.as_bytes());
        block
    }

    /// Whether the server hangs up.
    fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    let is_open = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                    return !is_open.contains(&error.kind());
                }
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Lets somebody attack, while another client is served and the memory stays small.
fn under(place: &Place, name: &str, attack: impl Fn(&Server) + Sync) {
    let (server, client) = serve(place);
    client.get("/info");
    let memory = Memory::of(&server);
    let waits = std::thread::scope(|scope| {
        let other = scope.spawn(|| Waits::of(&client, 40));
        for _ in 0..rounds() {
            attack(&server);
        }
        other.join().unwrap()
    });
    println!("{name}: p99 {:?}", waits.p99());
    assert!(waits.p99() < Duration::from_secs(5), "{:?}", waits.p99());
    memory.held(name, 128 * MIB);
    assert_eq!(client.get("/ok").status, 200);
}

fn headers_without_end_are_hung_up_on(place: &Place) {
    under(place, "a flood of CONTINUATION", |server| {
        let mut raw = Raw::open(server);
        let block = raw.request("/ok");
        let mut open = raw.send(&frame(HEADERS, 0, 1, &block));
        // A header `a: b`, again and again.
        let more = frame(CONTINUATION, 0, 1, &[0, 1, b'a', 1, b'b'].repeat(3000));
        let mut sent = 0;
        while open && sent < 256 * MIB as usize {
            open = raw.send(&more);
            sent += more.len();
        }
        println!("{} KiB of headers were taken", sent >> 10);
        assert!(
            sent < 16 * MIB as usize,
            "{sent} bytes of headers were taken"
        );
        assert!(raw.is_closed());
    });
}

fn requests_that_the_server_is_made_to_reset_are_hung_up_on(place: &Place) {
    under(place, "a flood of induced resets", |server| {
        let mut raw = Raw::open(server);
        let mut answers = raw.socket.try_clone().unwrap();
        let reader =
            std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()).ok());
        let block = raw.request("/threads");
        let (mut open, mut stream) = (true, 1);
        while open && stream < 200_000 {
            let mut both = frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block);
            // An increment of nothing is an error of the stream.
            both.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
            open = raw.send(&both);
            stream += 2;
        }
        println!("{} streams were reset", stream / 2);
        assert!(!open, "all of them were taken");
        raw.socket.shutdown(Shutdown::Both).ok();
        reader.join().unwrap();
    });
}

fn pings_whose_answers_nobody_reads_take_no_memory(place: &Place) {
    under(place, "a flood of PING", |server| {
        flood(server, &frame(PING, 0, 0, &[7; 8]));
    });
}

fn settings_whose_answers_nobody_reads_take_no_memory(place: &Place) {
    // The size of a window, which all streams get to know.
    let payload = [0, 4, 0, 0, 0xff, 0xff];
    under(place, "a flood of SETTINGS", |server| {
        flood(server, &frame(SETTINGS, 0, 0, &payload));
    });
}

/// Sends a frame until the server takes no more, at most 64 MiB of it.
fn flood(server: &Server, frame: &[u8]) {
    let mut raw = Raw::open(server);
    let many = frame.repeat(1000);
    let mut sent = 0;
    while raw.send(&many) && sent < 64 * MIB as usize {
        sent += many.len();
    }
    println!("{} KiB were taken", sent >> 10);
}
