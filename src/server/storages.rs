//! The storage that the settings name, opened in all its roles.

use std::sync::Arc;

use super::author::Author;
#[cfg(feature = "postgres")]
use crate::storage::postgres;
#[cfg(feature = "sqlite")]
use crate::storage::sqlite;
use crate::{
    config::{Settings, Storage},
    contention::Patience,
    crons, idempotency,
    runs::{self, Parts},
    store, webhooks,
};

/// What a program is told that was built without a storage which its settings name.
#[cfg(not(feature = "postgres"))]
const NO_POSTGRES: &str = "DATABASE_URL is set, but this program was built without Postgres: turn on the feature \
     `postgres` of backstitch, or unset DATABASE_URL to keep everything in a file";
#[cfg(not(feature = "sqlite"))]
const NO_SQLITE: &str = "this program was built without SQLite: set DATABASE_URL to keep everything in Postgres, or \
     turn on the feature `sqlite` of backstitch";

/// Brings the database to the newest schema.
pub(super) async fn migrate(settings: Settings) -> anyhow::Result<()> {
    match &settings.storage {
        #[cfg(not(feature = "postgres"))]
        Storage::Postgres(_) => anyhow::bail!(NO_POSTGRES),
        #[cfg(feature = "postgres")]
        Storage::Postgres(url) => {
            let applied = postgres::migrate(url.reveal()).await?;
            tracing::info!(applied, "the database has the newest schema");
        }
        // Opening it brings it to the newest schema.
        Storage::Sqlite(_) | Storage::Memory => drop(open(&settings, Author::default()).await?),
    }
    Ok(())
}

/// The storage that the settings name, as the parts of the services and as the store of keys.
pub(super) type Storages = (Parts, Arc<dyn idempotency::Store>);

pub(super) fn patience(settings: &Settings) -> Patience {
    Patience {
        waiting: settings.max_waiting,
        ..Patience::default()
    }
}

/// With the limits of its reads and the codec that the settings name.
#[cfg(feature = "sqlite")]
fn limited(store: sqlite::Store, settings: &Settings) -> sqlite::Store {
    store
        .with_read_limit(settings.read_limit)
        .with_request_wait(settings.request_wait)
        .with_share(settings.share)
        .with_format(settings.codec)
}

/// The storage the settings name, in all its roles.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(unused_variables)
)]
pub(super) async fn open(settings: &Settings, author: Author) -> anyhow::Result<Storages> {
    fn parts<T>(store: T, settings: &Settings, author: Author) -> Storages
    where
        T: runs::Storage + idempotency::Store,
    {
        let store = Arc::new(store);
        let parts = Parts {
            crons: crons::Service::new(
                store.clone(),
                settings.crons.clone(),
                crons::Clock::default(),
                patience(settings),
            ),
            items: store::Service::new(
                store.clone(),
                settings.items,
                author.shared,
                author.embedder,
            ),
            defaults: author.defaults,
            assistant_limits: settings.assistants,
            metadata: settings.metadata,
            graph_making: settings.graph_timeout,
            sender: webhooks::Sender::new(
                settings.webhooks.clone(),
                settings.webhook_secret.clone(),
            ),
            ..Parts::over(store.clone())
        };
        (parts, store)
    }
    match &settings.storage {
        #[cfg(not(feature = "postgres"))]
        Storage::Postgres(_) => Err(anyhow::anyhow!(NO_POSTGRES)),
        #[cfg(not(feature = "sqlite"))]
        Storage::Sqlite(_) | Storage::Memory => Err(anyhow::anyhow!(NO_SQLITE)),
        #[cfg(feature = "postgres")]
        Storage::Postgres(url) => {
            // Under an advisory lock: replicas may start at once.
            postgres::migrate(url.reveal()).await?;
            let options = postgres::Options {
                patience: patience(settings),
                read_limit: settings.read_limit,
                request_wait: settings.request_wait,
                share: settings.share,
                notifications: settings.notifications,
                format: settings.codec,
                ..postgres::Options::new(url.reveal()).with_connections(settings.connections)
            };
            let store = postgres::Store::connect(options).await?;
            Ok(parts(store, settings, author))
        }
        #[cfg(feature = "sqlite")]
        Storage::Sqlite(folder) => {
            let options = sqlite::Options {
                path: folder.clone(),
                synchronous_off: false,
            };
            let store = tokio::task::spawn_blocking(move || sqlite::Store::open(options)).await??;
            Ok(parts(limited(store, settings), settings, author))
        }
        #[cfg(feature = "sqlite")]
        Storage::Memory => {
            let store = tokio::task::spawn_blocking(sqlite::Store::private).await??;
            Ok(parts(limited(store, settings), settings, author))
        }
    }
}
