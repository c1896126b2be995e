//! The storages a test of the library runs on.

use backstitch::Local;

use super::support::postgres::{Database, database};

/// One storage, and what must live as long as it.
pub struct Storage {
    pub local: Local,
    folder: Option<tempfile::TempDir>,
    database: Option<Database>,
}

impl Storage {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            local: Local::sqlite(folder.path()).unwrap(),
            folder: Some(folder),
            database: None,
        }
    }

    pub async fn postgres() -> Self {
        let database = database().await;
        Self {
            local: Local::postgres(&database.url).await.unwrap(),
            folder: None,
            database: Some(database),
        }
    }

    /// The data directory, of SQLite.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_ref().map(tempfile::TempDir::path)
    }

    /// The URL, of Postgres.
    pub fn url(&self) -> Option<&str> {
        self.database.as_ref().map(|database| &*database.url)
    }
}

/// Makes two tests of every named `async fn(&Storage)`: one per storage.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let storage = $crate::storages::Storage::sqlite();
                super::$name(&storage).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let storage = $crate::storages::Storage::postgres().await;
                super::$name(&storage).await;
            })+
        }
    };
}
