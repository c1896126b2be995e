//! Before a new run ends others.

use futures::future::join_all;

use crate::{
    engine::ClosedLead,
    id::ThreadId,
    runs::{Service, Strategy, cancel::GRACE},
    tree::members::{Access, Level},
};

impl Service {
    /// Before a run with this strategy is created on a thread: what the runs have done that this process executes there becomes
    /// durable, since a run that is interrupted can store nothing any more. They go on meanwhile, as in `sync` durability
    /// until what is returned is dropped, because the new run may still be refused.
    ///
    /// Runs whose writes fail or take too long lose what is not durable, and so do those that other processes execute.
    /// Nothing happens where the client may not create a run, or with `rollback`, which discards what others did.
    pub(crate) async fn close_leads(
        &self,
        access: &Access,
        thread: ThreadId,
        strategy: Strategy,
    ) -> Vec<ClosedLead> {
        if strategy != Strategy::Interrupt {
            return vec![];
        }
        let leads: Vec<_> = {
            let active = self.inner.active.lock();
            let running = active.running().values();
            let here = running.filter(|handle| handle.publisher.thread() == thread);
            here.map(|handle| handle.lead.clone()).collect()
        };
        if leads.is_empty() || !self.may_create(access, thread).await {
            return vec![];
        }
        let closed: Vec<_> = leads.iter().map(|lead| lead.close()).collect();
        let stored = join_all(closed.iter().map(ClosedLead::stored));
        // What goes wrong here is no reason to refuse the new run.
        let _ = tokio::time::timeout(GRACE, stored).await;
        closed
    }

    /// Whether a client may create a run on a thread that is there, as far as is known: the transaction that creates
    /// the run checks it again, and says why not.
    async fn may_create(&self, access: &Access, thread: ThreadId) -> bool {
        let Some(principal) = access.principal() else {
            return true;
        };
        let tree = &self.shared.parts.tree;
        let level = tree.level_on_thread(thread, principal.clone()).await;
        level.is_ok_and(|level| access.at(Level::Writer).check(thread, level).is_ok())
    }
}
