//! What a webhook reports: the run as it ended, and the values that it left.

use std::sync::Arc;

use futures::FutureExt;

use crate::{
    budget::Reservation,
    id::{BranchId, CheckpointId},
    runs::{EndedRun, Error, Run, Service},
    time::Timestamp,
    tree::read::head,
    value::{Map, Value},
    webhooks::{outbox::Delivery, sender::Message},
};

/// What a delivery sends.
pub(super) struct Report {
    /// The body.
    pub body: Vec<u8>,
    /// The span of the request that created the run.
    pub traceparent: Option<Arc<str>>,
    /// The memory that the body takes.
    pub memory: Reservation,
}

impl Service {
    /// What a delivery sends; `None` when nothing is left to report. Waits until there is memory for it.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn report(&self, delivery: &Delivery) -> Result<Option<Report>, Error> {
        let mut waited = None;
        loop {
            let Some((run, body)) = self.body(delivery).await? else {
                return Ok(None);
            };
            let payer = run.principal.clone().unwrap_or_default();
            let bytes = body.len();
            let budget = &self.inner.states;
            // A run that has ended does not grow: what was waited for is enough.
            let memory = waited
                .take()
                .or_else(|| budget.wait(&payer, bytes).now_or_never());
            if let Some(memory) = memory {
                return Ok(Some(Report {
                    body,
                    traceparent: run.traceparent().map(Into::into),
                    memory,
                }));
            }
            // It is made once more later, rather than to take up memory that nobody counts, or the turn
            // of somebody who has memory left.
            drop(body);
            waited = Some(budget.wait(&payer, bytes).await);
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

    /// A run that has ended, and the body that reports it.
    async fn body(&self, delivery: &Delivery) -> Result<Option<(Run, Vec<u8>)>, Error> {
        let key = delivery.key;
        // States may be large, and what they take is known only once they are read. It is never closed.
        let _turn = self.inner.deliveries.rendering.acquire().await.ok();
        let Some(ended) = self.shared.parts.runs.ended_run(key.tree, key.run).await? else {
            return Ok(None);
        };
        let values = self.reported_values(&ended.run).await?;
        let report = report(&ended, values, Timestamp::now());
        let body = Value::map(report).to_json().into_bytes();
        Ok(Some((ended.run, body)))
    }

    /// The values at the last checkpoint of a run; null when it left none, went with its thread, or its
    /// principal may not read the thread any more: the receiver is whoever that principal chose.
    async fn reported_values(&self, run: &Run) -> Result<Value, Error> {
        let (Some(last), Some(branch), false) = (run.last_checkpoint, run.branch, run.temporary)
        else {
            return Ok(Value::Null);
        };
        if let Some(principal) = &run.principal {
            let tree = &self.shared.parts.tree;
            let level = tree.level_on_thread(run.thread, principal.clone()).await?;
            if level.is_none() {
                return Ok(Value::Null);
            }
        }
        self.values_in(run, branch, last).await
    }

    /// The values at a checkpoint of a run's branch; null if it is gone.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn values_at(&self, run: &Run, at: CheckpointId) -> Result<Value, Error> {
        match run.branch {
            Some(branch) => self.values_in(run, branch, at).await,
            None => Ok(Value::Null),
        }
    }

    async fn values_in(
        &self,
        run: &Run,
        branch: BranchId,
        at: CheckpointId,
    ) -> Result<Value, Error> {
        let graph = run.kwargs.get("config");
        let graph = graph.and_then(|config| config.get("configurable"));
        let graph = graph.and_then(|configurable| configurable.get("graph_id"));
        let graph: Option<Arc<str>> = graph.and_then(Value::as_str).map(Into::into);
        let registered = graph.and_then(|graph| self.shared.assistants.named(&graph));
        let topology = registered.as_ref().map(|registered| &*registered.topology);
        let slot = (run.tree, run.thread, branch);
        let read = head::values_at(&self.shared.parts.saver, slot, topology, at).await;
        Ok(read?)
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
