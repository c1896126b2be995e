//! What a webhook reports: the run as it ended, and the values that it left.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;

use super::turns::Turn;
use crate::{
    budget::Reservation,
    id::CheckpointId,
    runs::{
        EndedRun, Error, Run, Service,
        listing::BATCH_BYTES,
        shared::memory::{ReadMemory, bytes_of},
    },
    time::Timestamp,
    tree::{
        self,
        load::{self, Weighed},
        read::head,
    },
    value::{Map, Value},
    webhooks::{outbox::Delivery, sender::Message},
};

/// How long a report waits for memory before it may go on beside the budget: for less than a delivery may wait in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a delivery sends.
pub(super) struct Report {
    /// The body.
    pub body: Vec<u8>,
    /// The span of the request that created the run.
    pub traceparent: Option<Arc<str>>,
    /// The memory that the body takes.
    pub memory: ReportMemory,
}

/// What a report has that takes memory.
pub(super) enum ReportMemory {
    Reserved(Reservation),
    /// The one place beside the budget.
    Beside {
        _turn: Turn,
    },
}

/// What became of a report.
enum Made {
    /// Nothing is left to report.
    Nothing,
    Report(Report),
    /// It needs so many bytes of a payer's, and there are fewer left.
    Waits(Arc<str>, usize),
}

impl Service {
    /// What a delivery sends; `None` when nothing is left to report. Waits until there is memory for it.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn report(&self, delivery: &Delivery) -> Result<Option<Report>, Error> {
        let mut waited = None;
        loop {
            // It is made once more where it has to wait, rather than to take up memory that nobody counts, or
            // the turn of somebody who has memory left.
            match self.try_report(delivery, waited.take()).await? {
                Made::Nothing => return Ok(None),
                Made::Report(report) => return Ok(Some(report)),
                Made::Waits(payer, bytes) => {
                    waited = Some(self.memory_of_report(&payer, bytes).await);
                }
            }
        }
    }

    /// Memory for a report. Where its payer has none left for long, one report at a time goes on beside the budget,
    /// in turns of the payers: else it would be put off for as long as that.
    async fn memory_of_report(&self, payer: &Arc<str>, bytes: usize) -> ReportMemory {
        let mut memory = pin!(self.states().budget().wait(payer, bytes));
        if let Ok(memory) = tokio::time::timeout(PATIENCE, &mut memory).await {
            return ReportMemory::Reserved(memory);
        }
        let beside = self.inner.deliveries.beside.clone();
        tokio::select! {
            biased;
            memory = &mut memory => ReportMemory::Reserved(memory),
            turn = beside.wait(payer) => ReportMemory::Beside { _turn: turn },
        }
    }

    /// Sends a report, whose memory is free then.
    ///
    /// # Errors
    /// Why the receiver did not take it.
    pub(super) async fn send_report(
        &self,
        delivery: &Delivery,
        report: Report,
    ) -> Result<(), String> {
        let id = delivery.key.run.to_string();
        let now = Timestamp::now().0.div_euclid(1_000_000);
        let sender = &self.shared.parts.sender;
        let Report {
            body,
            traceparent,
            memory: _memory,
        } = report;
        let message = Message {
            id: &id,
            timestamp: now,
            traceparent: traceparent.as_deref(),
            body,
        };
        let result = sender.send(&delivery.url, message).await;
        result.map_err(|error| error.to_string())
    }

    /// The report, if there is memory for it: `waited` was waited for. A run that has ended does not grow, so that
    /// it is enough.
    async fn try_report(
        &self,
        delivery: &Delivery,
        mut waited: Option<ReportMemory>,
    ) -> Result<Made, Error> {
        let key = delivery.key;
        // Runs and states may be large. It is never closed.
        let _turn = self.inner.deliveries.rendering.acquire().await.ok();
        let Some(ended) = self.shared.parts.runs.ended_run(key.tree, key.run).await? else {
            return Ok(Made::Nothing);
        };
        let run = &ended.run;
        let budget = self.states().budget();
        let payer = run.principal.clone().unwrap_or_default();
        let at = self.reported_checkpoint(run).await?;
        let values = match at {
            Some(at) => {
                let weighed = self.weigh(run, at).await?;
                // For the body as well.
                if let Weighed::Large(weight) = &weighed
                    && let Some(bytes) = bytes_of(*weight, budget)
                    && waited.is_none()
                {
                    let Some(memory) = budget.wait(&payer, bytes).now_or_never() else {
                        return Ok(Made::Waits(payer, bytes));
                    };
                    waited = Some(ReportMemory::Reserved(memory));
                }
                self.values_of(run, at, &weighed).await?
            }
            None => Value::Null,
        };
        let report = report(&ended, values, Timestamp::now());
        let body = Value::map(report).to_json().into_bytes();
        let bytes = body.len();
        let memory = match waited {
            Some(mut memory) => {
                if let ReportMemory::Reserved(memory) = &mut memory {
                    // There is enough of it, as far as one payer may have that.
                    let _ = memory.resize(bytes.min(memory.bytes()));
                }
                memory
            }
            None => match budget.wait(&payer, bytes).now_or_never() {
                Some(memory) => ReportMemory::Reserved(memory),
                None => return Ok(Made::Waits(payer, bytes)),
            },
        };
        Ok(Made::Report(Report {
            body,
            traceparent: run.traceparent().map(Into::into),
            memory,
        }))
    }

    /// The last checkpoint of a run; none when it left none, went with its thread, or its principal may not
    /// read the thread any more: the receiver is whoever that principal chose.
    async fn reported_checkpoint(&self, run: &Run) -> Result<Option<CheckpointId>, Error> {
        let last = run.last_checkpoint.filter(|_| !run.temporary);
        if last.is_some()
            && let Some(principal) = &run.principal
        {
            let tree = &self.shared.parts.tree;
            let level = tree.level_on_thread(run.thread, principal.clone()).await?;
            return Ok(last.filter(|_| level.is_some()));
        }
        Ok(last)
    }

    /// The values at a checkpoint of a run's branch; null if it is gone. What large ones take is the memory's.
    ///
    /// # Errors
    /// There is not enough left, or the storage failed.
    pub async fn values_at(
        &self,
        run: &Run,
        at: CheckpointId,
        memory: &ReadMemory,
    ) -> Result<(Value, Option<Reservation>), Error> {
        let weighed = self.weigh(run, at).await?;
        let reserved = memory.obtain(weighed.weight()).await;
        let reserved = reserved.map_err(|_| tree::Error::no_memory())?;
        Ok((self.values_of(run, at, &weighed).await?, reserved))
    }

    async fn weigh(&self, run: &Run, at: CheckpointId) -> Result<Weighed, Error> {
        let saver = &self.shared.parts.saver;
        Ok(load::weighed(saver, run.tree, &"".into(), at, BATCH_BYTES).await?)
    }

    async fn values_of(
        &self,
        run: &Run,
        at: CheckpointId,
        weighed: &Weighed,
    ) -> Result<Value, Error> {
        let Some(branch) = run.branch else {
            return Ok(Value::Null);
        };
        let graph = run.kwargs.get("config");
        let graph = graph.and_then(|config| config.get("configurable"));
        let graph = graph.and_then(|configurable| configurable.get("graph_id"));
        let graph: Option<Arc<str>> = graph.and_then(Value::as_str).map(Into::into);
        let registered = graph.and_then(|graph| self.shared.assistants.named(&graph));
        let topology = registered.as_ref().map(|registered| &*registered.topology);
        let slot = (run.tree, run.thread, branch);
        let saver = &self.shared.parts.saver;
        Ok(head::values_at(saver, slot, topology, at, weighed).await?)
    }
}

fn report(ended: &EndedRun, values: Value, now: Timestamp) -> Map {
    let run = &ended.run;
    let mut map = run.to_map();
    let started = ended.started_at.map(|at| at.to_string().into());
    map.insert("run_started_at", started.unwrap_or(Value::Null));
    map.insert("run_ended_at", run.updated_at.to_string());
    map.insert("webhook_sent_at", now.to_string());
    map.insert("values", values);
    if let Some(error) = run.failure() {
        map.insert("error", error.clone());
    }
    map
}
