//! The server over real sockets, in front of the real services and a private database.

mod connections;
mod crons;
mod lookups;
mod requests;
mod server;
mod sockets;
mod streams;

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::Options;
use crate::value::Value;
use server::Running;

/// A thread that exists.
const THREAD: &str = "01a1faf4-ed9b-77dc-8ed1-cc6eef11d822";
/// A run of it that has ended, once [`Running::run`] was called.
const RUN: &str = "01a1faf4-eda9-7071-b5ab-76599db1f329";
/// A thread that does not exist.
const NOWHERE: &str = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";

fn request(method: &str, path: &str, headers: &[&str], body: Option<&str>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for header in headers {
        text += &format!("{header}\r\n");
    }
    if let Some(body) = body {
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    } else {
        text += "\r\n";
    }
    text
}

/// The JSON body of a response.
fn json(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    Value::from_json_slice(body.as_bytes()).unwrap()
}

/// What comes until the connection ends.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes);
    // A reset is an end, too.
    let _ = timeout(Duration::from_secs(10), read)
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What comes until it contains `end`.
async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(end) {
            if socket.read_buf(&mut bytes).await.unwrap() == 0 {
                break;
            }
        }
    };
    timeout(Duration::from_secs(10), read)
        .await
        .expect("the text comes");
    String::from_utf8_lossy(&bytes).into_owned()
}
