//! Operations on tags of a thread.

use std::sync::Arc;

use super::{Result, Service};
use crate::{
    id::{BranchId, ThreadId},
    runs::shared::memory::ChangeMemory,
    tree::{
        self, Address, Base, Outcome, Tx, resolve,
        store::rows::{Tag, ThreadRow},
        store::tx::InsertBranch,
        tag,
    },
};

impl Service {
    /// Sets a tag.
    ///
    /// # Errors
    /// 404: no such thread or address. 409 `empty_branch`, `too_many`. Or the storage failed.
    pub async fn set_tag(
        &self,
        id: ThreadId,
        name: Arc<str>,
        address: &Address,
    ) -> Result<tag::TagChange> {
        let memory = self.change_memory();
        let (mut tx, thread) = self.begin(id).await?;
        let mut resolved = tree::resolve(&mut *tx, &thread, address).await?;
        self.write_trimmed_checkpoint(&mut *tx, &thread, &mut resolved.base, &memory)
            .await?;
        let set = tag::set(&mut *tx, &thread, name, &resolved).await?;
        tx.commit().await?;
        self.shared.notifier.notify(id);
        Ok(set)
    }

    /// Writes a trimmed checkpoint for an address at which no checkpoint ends, so that a tag can name
    /// it. It is written on a branch that is deleted at once.
    async fn write_trimmed_checkpoint(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadRow,
        base: &mut Base,
        memory: &ChangeMemory,
    ) -> Result<()> {
        let Base::Trim { of, .. } = base else {
            return Ok(());
        };
        let id = BranchId::mint();
        tx.insert_branch(InsertBranch {
            id,
            tree: thread.tree,
            thread: thread.id,
            name: id.to_string().into(),
            head: Some(of.id),
            head_depth: of.depth,
            outcome: Outcome::Idle,
            origin: "checkpoint",
            source: None,
        })
        .await?;
        if let Some(branch) = tx.branch(thread.tree, id).await? {
            let head = self
                .shared
                .trim_branch(tx, thread, branch, base, memory)
                .await?
                .head;
            tx.delete_branch(thread.tree, id).await?;
            if let Some(head) = head
                && let Some(point) = tx.point(thread.tree, head).await?
            {
                *base = Base::At(point);
            }
        }
        Ok(())
    }

    /// Tags of a thread by name.
    ///
    /// # Errors
    /// 404: no such thread, or the storage failed.
    pub async fn tags(&self, id: ThreadId) -> Result<Vec<Tag>> {
        let (mut reader, thread) = self.reader(id).await?;
        Ok(reader.tags(thread.tree, id).await?)
    }

    /// One tag.
    ///
    /// # Errors
    /// 404: no such thread or tag, or the storage failed.
    pub async fn tag(&self, id: ThreadId, name: &str) -> Result<Tag> {
        let (mut reader, thread) = self.reader(id).await?;
        Ok(resolve::tag(&mut *reader, &thread, name).await?)
    }

    /// Deletes a tag.
    ///
    /// # Errors
    /// 404: no such thread or tag, or the storage failed.
    pub async fn delete_tag(&self, id: ThreadId, name: &str) -> Result<()> {
        let (mut tx, thread) = self.begin(id).await?;
        tag::delete(&mut *tx, &thread, name).await?;
        tx.commit().await?;
        self.shared.notifier.notify(id);
        Ok(())
    }
}
