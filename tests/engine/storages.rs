//! The storages a test of the library runs on.

use backstitch::Local;

use test_support::postgres::{Database, database};

/// One storage, and what must live as long as it.
pub struct Storage {
    pub local: Local,
    _folder: Option<tempfile::TempDir>,
    _database: Option<Database>,
}

impl Storage {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            local: Local::sqlite(folder.path()).unwrap(),
            _folder: Some(folder),
            _database: None,
        }
    }

    pub async fn postgres() -> Self {
        let database = database().await;
        Self {
            local: Local::postgres(&database.url).await.unwrap(),
            _folder: None,
            _database: Some(database),
        }
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
