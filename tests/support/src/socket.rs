//! Connections from another address of this machine, or with a window of their own.

use std::net::{IpAddr, TcpStream};

use tokio::net::TcpSocket;

use crate::place::block_on;

/// Connects, from `source` if that is given, with a window of so many bytes if that is.
pub(crate) fn connect(address: &str, source: Option<IpAddr>, window: Option<u32>) -> TcpStream {
    if source.is_none() && window.is_none() {
        return TcpStream::connect(address).unwrap();
    }
    block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(source) = source {
            socket.bind((source, 0).into()).unwrap();
        }
        if let Some(bytes) = window {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let stream = socket.connect(address.parse().unwrap()).await;
        let stream = stream.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    })
}
