//! Where a server of a test keeps its data: one test body, a test per storage.

use crate::client::Client;
use crate::postgres::{self, Database};
use crate::server::{Server, Setup};

/// A storage of one test.
#[derive(Debug)]
pub struct Place {
    database: Option<Database>,
}

impl Place {
    /// An SQLite file in the server's own folder.
    pub fn sqlite() -> Self {
        Self { database: None }
    }

    /// A Postgres database of its own.
    pub fn postgres() -> Self {
        Self {
            database: Some(block_on(postgres::database())),
        }
    }

    /// Another one of the same kind, with nothing in it.
    #[must_use]
    pub fn another(&self) -> Self {
        if self.is_postgres() {
            Self::postgres()
        } else {
            Self::sqlite()
        }
    }

    /// Whether it is Postgres.
    pub fn is_postgres(&self) -> bool {
        self.database.is_some()
    }

    /// Its URL, of a Postgres database.
    pub fn url(&self) -> Option<&str> {
        self.database.as_ref().map(|database| &*database.url)
    }

    /// Starts a server that keeps its data here.
    pub fn start(&self, setup: Setup) -> Server {
        match &self.database {
            Some(database) => setup.postgres(database).start(),
            None => setup.start(),
        }
    }
}

/// A server of the reference graphs that keeps its data there, and a client of it.
pub fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    (server, client)
}

/// Drives a future from a test that is not asynchronous.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Makes two tests of every named function `fn(&Place)`: one per storage. Of those behind `postgres_in_long_form:` the
/// one on Postgres is ignored, and runs where ignored tests are asked for: what they are about is the same code on
/// either storage.
#[macro_export]
macro_rules! on_both_storages {
    ($($name:ident),* $(,)? $(; postgres_in_long_form: $($long:ident),+ $(,)?)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&$crate::place::Place::sqlite());
            })*
            $($(#[test]
            fn $long() {
                super::$long(&$crate::place::Place::sqlite());
            })+)?
        }
        mod postgres {
            $(#[test]
            fn $name() {
                super::$name(&$crate::place::Place::postgres());
            })*
            $($(#[test]
            #[ignore = "in the long form: the same code as on SQLite, and what rows weigh is tested by itself"]
            fn $long() {
                super::$long(&$crate::place::Place::postgres());
            })+)?
        }
    };
}
