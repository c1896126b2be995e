//! Raw connections that become WebSockets, for clients that do what no library does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::server::Server;

/// The headers of a handshake.
pub const HANDSHAKE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A connection that has sent the head of a request for a thread's events, as far as these headers go.
pub fn knock(server: &Server, thread: &str, headers: &str) -> TcpStream {
    let address = server.base_url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    let head =
        format!("GET /threads/{thread}/stream/events HTTP/1.1\r\nhost: {address}\r\n{headers}");
    stream.write_all(head.as_bytes()).unwrap();
    let patience = Duration::from_secs(60);
    stream.set_read_timeout(Some(patience)).unwrap();
    stream
}

/// The head of the response, and nothing of what follows it.
pub fn response_head(mut stream: &TcpStream) -> String {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
