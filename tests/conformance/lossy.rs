//! A way to the database that loses replies and connections while the database goes on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use test_support::postgres::Database;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A proxy before a database.
pub struct Lossy {
    /// The database by way of this.
    pub url: String,
    state: Arc<State>,
}

struct State {
    /// Set when the replies on the present connections are lost.
    mute: Mutex<Arc<AtomicBool>>,
    /// Sent when the present connections are lost.
    cut: watch::Sender<()>,
    is_away: AtomicBool,
}

impl Lossy {
    pub async fn before(database: &Database) -> Self {
        let (head, rest) = database.url.split_once('@').unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mute: Mutex::default(),
            cut: watch::Sender::new(()),
            is_away: AtomicBool::new(false),
        });
        let (address, shared) = (address.to_owned(), state.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.is_away.load(Ordering::Relaxed) {
                    let server = TcpStream::connect(&address).await.unwrap();
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let is_mute = shared.mute.lock().clone();
                    tokio::spawn(forward(client, server, is_mute, shared.cut.subscribe()));
                }
            }
        });
        let url = format!("{head}@{own}/{path}");
        Self { url, state }
    }

    /// What the database replies on the present connections from now on is lost.
    pub fn mute(&self) {
        let present = std::mem::take(&mut *self.state.mute.lock());
        present.store(true, Ordering::Relaxed);
    }

    /// Ends the present connections for the client; the database learns nothing of it.
    pub fn cut(&self) {
        self.state.cut.send_replace(());
    }

    /// Ends the present connections, and every new one as it comes.
    pub fn go_away(&self) {
        self.state.is_away.store(true, Ordering::Relaxed);
        self.cut();
    }
}

async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    is_mute: Arc<AtomicBool>,
    mut cut: watch::Receiver<()>,
) {
    {
        let (mut requests, mut replies) = client.split();
        let (mut from, mut to) = server.split();
        let back = async {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes).await {
                if !is_mute.load(Ordering::Relaxed)
                    && replies.write_all(&bytes[..count]).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            _ = copy(&mut requests, &mut to) => return,
            () = back => return,
            _ = cut.changed() => {}
        }
    }
    drop(client);
    let mut bytes = vec![0; 1 << 16];
    while let Ok(1..) = server.read(&mut bytes).await {}
}
