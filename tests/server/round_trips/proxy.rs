//! What a server asks Postgres for.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
};

use parking_lot::Mutex;
use test_support::postgres::Database;

/// The texts of statements, in the order in which they were executed.
type Executed = Arc<Mutex<Vec<Arc<str>>>>;

/// A connection between a server and its database that notes which statements are executed.
pub struct Proxy {
    /// The URL of the database for the server.
    pub url: String,
    executed: Executed,
}

impl Proxy {
    pub fn before(database: &Database) -> Self {
        let (head, rest) = database.url.split_once('@').unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let executed = Executed::default();
        let (noted, address) = (executed.clone(), address.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let server = TcpStream::connect(&address).unwrap();
                let (answers, asker) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let mut statements = Statements::new(noted.clone());
                std::thread::spawn(move || forward(answers, asker));
                std::thread::spawn(move || note_and_forward(client, server, &mut statements));
            }
        });
        Self {
            url: format!("{head}@{own}/{path}"),
            executed,
        }
    }

    /// How many statements were executed until now.
    pub fn count(&self) -> usize {
        self.executed.lock().len()
    }

    /// The statements that were executed after the first `count` ones.
    pub fn since(&self, count: usize) -> Vec<Arc<str>> {
        self.executed.lock()[count..].to_vec()
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// The statements of one connection.
struct Statements {
    executed: Executed,
    /// Prepared ones, by name.
    prepared: HashMap<String, Arc<str>>,
    /// Those that are bound to values, by portal.
    bound: HashMap<String, Arc<str>>,
}

impl Statements {
    fn new(executed: Executed) -> Self {
        Self {
            executed,
            prepared: HashMap::new(),
            bound: HashMap::new(),
        }
    }

    /// Notes what a message of the server prepares, binds or executes.
    fn note(&mut self, message: &[u8]) {
        let mut texts = message[5..].split(|byte| *byte == 0);
        let mut next = || String::from_utf8_lossy(texts.next().unwrap()).into_owned();
        match message[0] {
            b'P' => {
                let (name, text) = (next(), next());
                self.prepared.insert(name, text.into());
            }
            b'B' => {
                let (portal, name) = (next(), next());
                self.bound.insert(portal, self.prepared[&name].clone());
            }
            b'E' => self.executed.lock().push(self.bound[&next()].clone()),
            b'Q' => self.executed.lock().push(next().into()),
            _ => {}
        }
    }
}

/// Forwards what the server sends, message by message.
fn note_and_forward(mut from: TcpStream, mut to: TcpStream, statements: &mut Statements) {
    let mut starting = true;
    while let Some(message) = message(&mut from, starting) {
        if starting {
            // A message without a type: the request for encryption, or the start itself.
            starting = message[4..8] == 80_877_103_i32.to_be_bytes();
        } else {
            statements.note(&message);
        }
        if to.write_all(&message).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// One message of Postgres's protocol; `None` when the connection is over.
fn message(from: &mut TcpStream, starting: bool) -> Option<Vec<u8>> {
    let mut message = vec![0; if starting { 4 } else { 5 }];
    from.read_exact(&mut message).ok()?;
    let head = message.len();
    let length: [u8; 4] = message[head - 4..].try_into().ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    message.resize(head - 4 + length, 0);
    from.read_exact(&mut message[head..]).ok()?;
    Some(message)
}
