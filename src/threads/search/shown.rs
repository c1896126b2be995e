//! What lists show of a thread besides its row: its state, or its interrupts alone. It is read as far as is needed to
//! know its size, and the rest when its turn comes.

use crate::{
    assistants::Tries,
    threads::{Result, Service},
    tree::{
        Thread,
        load::Weighed,
        read::{head::Head, interrupts::open_interrupts},
        store::rows::PendingInterrupts,
    },
    value::{Map, Value},
};

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The row alone.
    Row,
    /// The open interrupts too.
    Interrupts,
    /// The values too.
    State,
}

/// What is shown besides the row, with its size.
pub(super) enum Shown {
    Nothing,
    Interrupts(PendingInterrupts),
    State(Weighed),
}

impl Shown {
    /// What it weighs.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Interrupts(pending) => pending.weight,
            Self::State(head) => head.weight(),
        }
    }

    /// What that part of it weighs which is in memory already.
    pub(super) fn weight_in_memory(&self) -> u64 {
        match self {
            Self::Interrupts(PendingInterrupts {
                rows: Some(_),
                weight,
            }) => *weight,
            Self::State(Weighed::Read(rows)) => rows.weight(),
            _ => 0,
        }
    }

    /// What it weighs, where it is too large to have been read.
    pub(super) fn weight_of_large(&self) -> Option<u64> {
        match self {
            Self::Interrupts(PendingInterrupts { rows: None, weight }) => Some(*weight),
            Self::State(Weighed::Large(weight)) => Some(*weight),
            _ => None,
        }
    }
}

impl Service {
    /// The size of what is shown of a thread, and that itself if it weighs at most `most`.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn measure_shown(
        &self,
        thread: &Thread,
        extent: Extent,
        most: u64,
    ) -> Result<Shown> {
        let shown = match extent {
            Extent::Row => None,
            Extent::Interrupts => {
                let pending = self.pending_interrupts(thread, most).await?;
                pending.map(Shown::Interrupts)
            }
            Extent::State => {
                let head = self.shared.weighed_head(thread, most).await?;
                head.map(Shown::State)
            }
        };
        Ok(shown.unwrap_or(Shown::Nothing))
    }

    /// What was measured. For what is large the caller has the memory.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn read_shown(
        &self,
        thread: &Thread,
        shown: &Shown,
        tries: Option<&Tries>,
    ) -> Result<Head> {
        match shown {
            Shown::Nothing => Ok(Head::default()),
            Shown::State(head) => Ok(self.shared.read_head(thread, head, tries).await?),
            Shown::Interrupts(pending) => Ok(Head {
                values: Value::Null,
                interrupts: self.read_interrupts(thread, pending, tries).await?,
            }),
        }
    }

    /// Interrupts are those of a graph: without one there are none.
    async fn read_interrupts(
        &self,
        thread: &Thread,
        pending: &PendingInterrupts,
        tries: Option<&Tries>,
    ) -> Result<Map> {
        let open = match &pending.rows {
            Some(rows) => open_interrupts(rows)?,
            None => {
                let read = self.pending_interrupts(thread, u64::MAX).await?;
                let rows = read.and_then(|pending| pending.rows);
                open_interrupts(&rows.unwrap_or_default())?
            }
        };
        let graph = self
            .shared
            .shown_graph_of(thread.id, &thread.metadata, tries);
        let has_graph = open.is_empty() || graph.await?.is_some();
        Ok(if has_graph { open } else { Map::new() })
    }

    /// `None` before the first checkpoint.
    async fn pending_interrupts(
        &self,
        thread: &Thread,
        most: u64,
    ) -> Result<Option<PendingInterrupts>> {
        let Some(head) = thread.head else {
            return Ok(None);
        };
        let tree = &self.shared.parts.tree;
        let pending = tree.pending_interrupts(thread.tree, thread.active_branch, head, most);
        Ok(Some(pending.await?))
    }
}
