//! Requests on a connection of their own, which may break off.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

/// A request to a server that may die of it, and its answer if there is one.
pub fn request(address: &str, method: &str, path: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let timeout = Some(Duration::from_secs(10));
    stream.set_read_timeout(timeout).ok()?;
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}
