//! Clients that send frames of HTTP/2 no client needs: headers without end, pings and settings without
//! number, and requests that make the server reset them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
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

    /// Whether the server hangs up on a client that reads nothing.
    fn is_cut_off(&mut self) -> bool {
        let begin = Instant::now();
        let mut error = None;
        while begin.elapsed() < 10 * STALL {
            error = self.socket.write_all(&[0; 4096]).err();
            let kind = error.as_ref().map(std::io::Error::kind);
            if !matches!(
                kind,
                None | Some(ErrorKind::WouldBlock | ErrorKind::TimedOut)
            ) {
                return true;
            }
        }
        println!("the last write: {error:?}");
        false
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

/// How long a client may take nothing of a response.
const STALL: Duration = Duration::from_secs(1);
/// How often a healthy client changes and reads something.
const EVERY: Duration = Duration::from_millis(100);

/// Lets somebody attack for some seconds, while a healthy client goes on and the memory stays small.
fn under(place: &Place, name: &str, attack: impl Fn(&Server)) {
    // The short form runs beside other tests, each of which may take the processors for as long as it lasts.
    let (least, tries) = if rounds() < 10 { (0.5, 3) } else { (0.8, 1) };
    let served = (0..tries).any(|_| served_under(place, name, &attack) >= least);
    assert!(
        served,
        "a healthy client had less than {least} of its traffic"
    );
}

/// The share of its traffic that a healthy client has meanwhile.
fn served_under(place: &Place, name: &str, attack: &impl Fn(&Server)) -> f64 {
    let setup = Setup::example("reference_server");
    let server = place.start(setup.env("BACKSTITCH_STALL", STALL.as_secs().to_string()));
    let client = Client::of(&server);
    client.get("/info");
    let time = Duration::from_millis(1500) * u32::try_from(rounds()).unwrap();
    let begin = Instant::now();
    let watch = Watch::every(EVERY, &server, &client);
    let mut attacks = 0;
    while begin.elapsed() < time {
        attack(&server);
        attacks += 1;
    }
    let possible = begin.elapsed().as_secs_f64() / EVERY.as_secs_f64();
    let waits = watch.held(name, 128 * MIB);
    let served = waits.count() as f64 / possible;
    println!("{name}: {attacks} times; a healthy client had {served:.2} of its traffic");
    assert_eq!(client.get("/ok").status, 200);
    served
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

/// Sends a frame until the server takes no more, at most 64 MiB of it, and then hangs up.
fn flood(server: &Server, frame: &[u8]) {
    let mut raw = Raw::open(server);
    let many = frame.repeat(1000);
    let mut sent = 0;
    while raw.send(&many) && sent < 64 * MIB as usize {
        sent += many.len();
    }
    println!("{} KiB were taken", sent >> 10);
    assert!(raw.is_cut_off(), "the connection is still there");
}
