//! Hints between the processes on one database, by LISTEN and NOTIFY on a connection of its own.
//!
//! NOTIFY takes a lock of the whole database until its transaction is on disk: in the transactions that
//! write, it would let them commit one by one. So it is done after them, and does not wait for the
//! disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Notification, types::ToSql};

use super::connection::{Failure, Result, SESSION, configure};
use crate::{
    checkpoint::Error,
    runs::shared::hints::{Link, Linker},
};

/// The name under which the processes of this program meet in a database.
const LISTEN: &str = "LISTEN backstitch";
/// The number by which the messages of this connection are recognised.
const OWN: &str = "SELECT pg_backend_pid()";
const NOTIFY: &str =
    "SELECT count(pg_notify('backstitch', message)) FROM unnest($1::text[]) messages(message)";
/// Messages that were received and not read yet.
const UNREAD: usize = 256;
/// How long the database may take for a statement.
const LIMIT: Duration = Duration::from_secs(5);

/// Connects to the database at a URL.
pub(super) struct DatabaseLinker {
    pub url: String,
}

#[async_trait]
impl Linker for DatabaseLinker {
    async fn connect(&self) -> Result<Box<dyn Link>, Error> {
        let session = format!("{SESSION} -c synchronous_commit=off");
        let config = configure(&self.url, &session);
        let mut config = config.map_err(|error| Error::Unavailable(error.to_string()))?;
        // Operators find it among the connections by this name.
        config.application_name("backstitch notifications");
        let link = timeout(2 * LIMIT, open(&config)).await;
        let link = link.map_err(|_| too_slow())?.map_err(Failure::into_error)?;
        Ok(Box::new(link))
    }
}

async fn open(config: &Config) -> Result<DatabaseLink> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let (sender, messages) = mpsc::channel(UNREAD);
    let state = Arc::<State>::default();
    let received = state.clone();
    // Ends with the client, or with the connection; then its sender is dropped too.
    tokio::spawn(async move {
        let mut incoming = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = incoming.next().await {
            if let AsyncMessage::Notification(notification) = message {
                received.take(&notification, &sender);
            }
        }
    });
    let own = client.query_one(OWN, &[]).await?;
    let own: i32 = own.try_get(0)?;
    client.batch_execute(LISTEN).await?;
    Ok(DatabaseLink {
        client,
        messages,
        state,
        own,
    })
}

/// What the task of a connection has received, besides the messages.
#[derive(Default)]
struct State {
    /// There were more messages than could be retained.
    has_lost: AtomicBool,
    received: AtomicU64,
}

impl State {
    fn take(&self, notification: &Notification, sender: &mpsc::Sender<(i32, String)>) {
        self.received.fetch_add(1, Ordering::AcqRel);
        let message = (notification.process_id(), notification.payload().to_owned());
        if sender.try_send(message).is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
    }
}

/// A connection that listens.
struct DatabaseLink {
    client: Client,
    /// The messages of all processes, with the number of the connection that each is of.
    messages: mpsc::Receiver<(i32, String)>,
    state: Arc<State>,
    /// The number of this connection.
    own: i32,
}

#[async_trait]
impl Link for DatabaseLink {
    async fn publish(&mut self, messages: &[String]) -> Result<(), Error> {
        let ping = [String::new()];
        let messages = if messages.is_empty() {
            &ping[..]
        } else {
            messages
        };
        let before = self.state.received.load(Ordering::Acquire);
        let params: [&(dyn ToSql + Sync); 1] = [&messages];
        let notified = self.client.execute(NOTIFY, &params);
        let notified = timeout(LIMIT, notified).await.map_err(|_| too_slow())?;
        notified.map_err(|error| Failure::from(error).into_error())?;
        // What a connection notifies of it receives itself, before the statement is over.
        if self.state.received.load(Ordering::Acquire) == before {
            let reason = "notifications do not arrive: is there a connection pooler between, which shares \
                          connections?";
            return Err(Error::Unavailable(reason.to_owned()));
        }
        Ok(())
    }

    async fn receive(&mut self) -> Option<String> {
        loop {
            if self.state.has_lost.swap(false, Ordering::AcqRel) {
                return Some("*".to_owned());
            }
            let (from, message) = self.messages.recv().await?;
            if from != self.own {
                return Some(message);
            }
        }
    }
}

fn too_slow() -> Error {
    Error::Unavailable("the connection for notifications gave no answer in time".to_owned())
}

statements!(OWN, NOTIFY);
