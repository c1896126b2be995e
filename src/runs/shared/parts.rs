//! One storage in all its roles, as the parts that the services work with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::Parts;
#[cfg(feature = "server")]
use crate::contention::Patience;
use crate::{
    assistants,
    checkpoint::Saver,
    crons, runs, store, stream,
    tree::{self, metadata},
    webhooks,
};

/// A storage in all its roles.
pub(crate) trait Storage:
    Saver
    + tree::Store
    + tree::projection::Store
    + runs::Store
    + store::Store
    + assistants::Store
    + crons::Store
    + stream::log::Log
    + webhooks::outbox::Store
{
}

impl<T> Storage for T where
    T: Saver
        + tree::Store
        + tree::projection::Store
        + runs::Store
        + store::Store
        + assistants::Store
        + crons::Store
        + stream::log::Log
        + webhooks::outbox::Store
{
}

impl Parts {
    /// What the services need, with the defaults of a server. Graphs come as they are.
    pub(crate) fn over<T: Storage>(store: Arc<T>) -> Self {
        Self {
            saver: store.clone(),
            tree: store.clone(),
            runs: store.clone(),
            #[cfg(feature = "server")]
            crons: crons::Service::new(
                store.clone(),
                crons::Options::default(),
                crons::Clock::default(),
                Patience::default(),
            ),
            items: store::Service::new(store.clone(), store::Limits::default(), Vec::new(), None),
            log: store.clone(),
            projections: store.clone(),
            assistants: store.clone(),
            defaults: BTreeMap::new(),
            assistant_limits: assistants::Limits::default(),
            metadata: metadata::Limits::default(),
            graph_making: Duration::ZERO,
            outbox: store,
            #[cfg(feature = "server")]
            sender: webhooks::Sender::new(Arc::default(), None),
        }
    }
}
