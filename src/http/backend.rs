//! The run service behind the handlers.

mod branches;
mod described;
mod elsewhere;
mod events;
mod forks;
mod messages;

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;

use self::elsewhere::Elsewhere;
use super::{Api, Error, OnDisconnect, Outcome, Streaming, Waiting, Xray, api::assistants};
use crate::{
    graph::draw,
    id::{AssistantId, RunId, ThreadId},
    runs::{
        self, End, Live, Service, Status,
        request::{
            self, Address, Assistant, Cancel, CancelAction, OnDisconnect as Policy, Prune, Target,
            threads::{Create, Edit, Filter, History, Search, View},
        },
    },
    stream::{FrameSource, Since, write_frame},
    tree::NewThread,
    value::{Map, Value},
};

fn no_such_run() -> Value {
    let mut map = Map::new();
    map.insert("error", "HTTPException");
    map.insert("message", "404: Run not found");
    Value::map(map)
}

/// For who waits here for a run that another process will end.
fn handed_over() -> Value {
    let mut map = Map::new();
    map.insert("error", "ServerShutdown");
    map.insert(
        "message",
        "this server has stopped; the run goes on, join it again",
    );
    Value::map(map)
}

/// Cancels the run when its client leaves, if that was asked for.
fn on_disconnect(service: &Service, run: Target, policy: Policy) -> Option<OnDisconnect> {
    (policy == Policy::Cancel).then(|| {
        let service = service.clone();
        let leave: OnDisconnect = Box::new(move || {
            tokio::spawn(async move {
                let why = "client disconnected from the run stream (on_disconnect=cancel)";
                let cancelled = service.cancel(run.thread, run.run, CancelAction::Interrupt, why);
                if let Err(error) = cancelled.await {
                    tracing::warn!(%error, "a run whose client left could not be cancelled");
                }
            });
        });
        leave
    })
}

/// Why a run was cancelled by request: LangGraph's server names the path without ids.
fn requested(action: CancelAction) -> String {
    let action = action.as_str();
    format!("{action} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel")
}

/// What a run of this process leaves; that there is none if it was deleted or undone meanwhile.
async fn body_of(service: Service, run: Target, temporary: bool, live: Live) -> Value {
    let end = live.ended().await;
    let lost = end
        .as_ref()
        .is_none_or(|end| end.status == Status::Interrupted);
    let row = match lost {
        true => service.find_run(run.thread, run.run).await,
        false => return end.map_or_else(Value::default, |end| end.body()),
    };
    match (row, end) {
        // A temporary one is always gone by now.
        (Ok(None), _) if !temporary => failed(no_such_run()),
        (Ok(Some(row)), None) if !row.status.is_final() => failed(handed_over()),
        (_, Some(end)) => end.body(),
        (_, None) => Value::map(Map::new()),
    }
}

fn failed(error: Value) -> Value {
    Value::map(Map::from([("__error__", error)]))
}

#[async_trait]
impl Api for Service {
    async fn check(&self) -> Result<(), Error> {
        Ok(self.ping().await?)
    }

    async fn create_thread(&self, create: Create) -> Result<View, Error> {
        let id = create.id.unwrap_or_else(ThreadId::mint);
        let created = self
            .new_thread(NewThread {
                id,
                metadata: create.metadata,
                owner: create.principal.to_string(),
                if_exists: create.if_exists,
            })
            .await?;
        if create.supersteps.is_empty() {
            return Ok(self.view(created).await?);
        }
        if let Err(error) = self.replay_updates(&created, create.supersteps).await {
            if let runs::Error::Engine(error) = error {
                return Err(error.into());
            }
            // The thread exists, so this is no failure of the creation.
            return Err(Error::new(
                hyper::StatusCode::CREATED,
                format!(
                    "Thread {id} was created, but there were problems updating the state: {error}"
                ),
            ));
        }
        let row = Service::thread(self, id).await?;
        Ok(self.view(row).await?)
    }

    async fn thread(&self, id: ThreadId) -> Result<View, Error> {
        let row = Service::thread(self, id).await?;
        Ok(self.view(row).await?)
    }

    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<View, Error> {
        let row = self.patch(id, metadata).await?;
        Ok(self.view(row).await?)
    }

    async fn delete_thread(&self, id: ThreadId) -> Result<(), Error> {
        Ok(self.delete(id).await?)
    }

    async fn search_threads(&self, search: Search) -> Result<Vec<View>, Error> {
        Ok(Service::search(self, &search).await?)
    }

    async fn count_threads(&self, filter: Filter) -> Result<u64, Error> {
        Ok(Service::count(self, &filter).await?)
    }

    async fn state(&self, id: ThreadId, at: Address, subgraphs: bool) -> Result<Value, Error> {
        Ok(Service::state(self, id, &at, subgraphs).await?)
    }

    async fn history(&self, id: ThreadId, page: History) -> Result<Vec<Value>, Error> {
        Ok(Service::history(self, id, &page).await?)
    }

    async fn edit_state(&self, id: ThreadId, edit: Edit) -> Result<Value, Error> {
        Ok(self.edit(id, edit).await?)
    }

    async fn create_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<runs::Run, Error> {
        let mut row = self.create(thread, run, false).await?.run;
        // The answer tells of the moment of creation, even when the run has begun meanwhile.
        row.status = Status::Pending;
        Ok(row)
    }

    async fn stream_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<Streaming, Error> {
        let policy = run.on_disconnect;
        let new = self.create(thread, run, true).await?;
        let target = Target {
            thread: new.run.thread,
            run: new.run.id,
        };
        let frames: Box<dyn FrameSource> = match new.frames {
            Some(frames) => Box::new(frames),
            None => Box::new(None),
        };
        Ok(Streaming {
            run: target,
            frames,
            on_disconnect: on_disconnect(self, target, policy),
        })
    }

    async fn wait_run(
        &self,
        thread: Option<ThreadId>,
        run: request::Run,
    ) -> Result<Waiting, Error> {
        let policy = run.on_disconnect;
        let new = self.create(thread, run, false).await?;
        let target = Target {
            thread: new.run.thread,
            run: new.run.id,
        };
        Ok(Waiting {
            run: target,
            result: body_of(self.clone(), target, new.run.temporary, new.live).boxed(),
            on_disconnect: on_disconnect(self, target, policy),
        })
    }

    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<runs::Run>, Error> {
        Ok(self.list_runs(thread, status, limit, offset).await?)
    }

    async fn run(&self, run: Target) -> Result<runs::Run, Error> {
        let found = self.find_run(run.thread, run.run).await?;
        found.ok_or_else(Error::not_found)
    }

    async fn delete_run(&self, run: Target) -> Result<(), Error> {
        Ok(Service::delete_run(self, run.thread, run.run).await?)
    }

    async fn join_run(&self, run: Target, cancel_on_disconnect: bool) -> Result<Outcome, Error> {
        let policy = match cancel_on_disconnect {
            true => Policy::Cancel,
            false => Policy::Continue,
        };
        if let Some(live) = self.live(run.run) {
            let leave = on_disconnect(self, run, policy);
            let body = body_of(self.clone(), run, false, live);
            return Ok((body.boxed(), leave));
        }
        let service = self.clone();
        let found = self.find_run(run.thread, run.run).await?;
        let Some(row) = found else {
            let body = failed(no_such_run());
            return Ok((futures::future::ready(body).boxed(), None));
        };
        let result = async move { service.end_of(row.thread, run.run).await };
        Ok((result.boxed(), on_disconnect(self, run, policy)))
    }

    fn keeps_events(&self, run: Target) -> bool {
        let stream = self.stream(run.run);
        stream.is_some_and(|publisher| publisher.resumable())
    }

    async fn join_stream(
        &self,
        run: Target,
        join: request::Join,
    ) -> Result<(Box<dyn FrameSource>, Option<OnDisconnect>), Error> {
        let since = Since::last_event_id(join.last_event_id.as_deref());
        let policy = match join.cancel_on_disconnect {
            true => Policy::Cancel,
            false => Policy::Continue,
        };
        if let Some(publisher) = self.stream(run.run) {
            // What was never kept cannot be replayed.
            let since = match publisher.resumable() {
                true => since,
                false => Since::Live,
            };
            let frames = publisher.subscribe(since, &join.modes);
            return Ok((Box::new(frames), on_disconnect(self, run, policy)));
        }
        let row = self.find_run(run.thread, run.run).await?;
        if row.as_ref().is_some_and(|row| !row.status.is_final()) {
            let frames = Elsewhere::new(self.clone(), run, join.modes);
            return Ok((Box::new(frames), on_disconnect(self, run, policy)));
        }
        let bytes = row.is_none().then(|| {
            let mut bytes = vec![];
            write_frame(
                &mut bytes,
                "error",
                no_such_run().to_json().as_bytes(),
                None,
            );
            bytes::Bytes::from(bytes)
        });
        Ok((Box::new(bytes), None))
    }

    async fn cancel_run(
        &self,
        run: Target,
        action: CancelAction,
        wait: bool,
    ) -> Result<Option<Value>, Error> {
        let live = self.live(run.run);
        let why = requested(action);
        if !self.cancel(run.thread, run.run, action, &why).await? {
            let known = self.find_run(run.thread, run.run).await?.is_some();
            return Err(Error::nothing_to_cancel(known));
        }
        if !wait {
            return Ok(None);
        }
        let end = match live {
            Some(live) => live.ended().await,
            None => None,
        };
        // Nothing is left of what was undone.
        let end = end.filter(|_| action == CancelAction::Interrupt);
        let body = end.map(|end: Arc<End>| end.body());
        Ok(Some(body.unwrap_or_else(|| Value::map(Map::new()))))
    }

    async fn copy_thread(&self, id: ThreadId, owner: Arc<str>) -> Result<View, Error> {
        let row = Service::copy_thread(self, id, &owner).await?;
        Ok(self.view(row).await?)
    }

    async fn prune_threads(&self, ids: Vec<ThreadId>, how: Prune) -> Result<u64, Error> {
        let mut pruned = 0;
        for id in ids {
            let found = match how {
                Prune::KeepLatest => self.prune_thread(id).await?,
                Prune::Delete => match self.delete(id).await {
                    Err(runs::Error::NoThread(_)) => false,
                    deleted => deleted.map(|()| true)?,
                },
            };
            pruned += u64::from(found);
        }
        Ok(pruned)
    }

    async fn cancel_runs(
        &self,
        which: Cancel,
        action: CancelAction,
        principal: Option<Arc<str>>,
    ) -> Result<(), Error> {
        let runs = match which {
            Cancel::Status(status) => self.cancellable(status, principal).await?,
            Cancel::Runs(thread, runs) => runs.into_iter().map(|run| (thread, run)).collect(),
        };
        let why = requested(action);
        let (mut known, mut any) = (false, false);
        for (thread, run) in runs {
            if self.cancel(thread, run, action, &why).await? {
                any = true;
            } else if !any && !known {
                known = self.find_run(thread, run).await?.is_some();
            }
        }
        match any {
            true => Ok(()),
            false => Err(Error::nothing_to_cancel(known)),
        }
    }

    async fn assistant(&self, id: AssistantId) -> Result<Value, Error> {
        Service::assistant(self, id).ok_or_else(Error::not_found)
    }

    async fn search_assistants(&self, search: assistants::Search) -> Result<Vec<Value>, Error> {
        Ok(described::search(self.assistants(), &search))
    }

    async fn graph(&self, assistant: Assistant, xray: Xray) -> Result<Value, Error> {
        let (_, graph) = Service::graph(self, &assistant)?;
        let depth = match xray {
            Xray::Levels(levels) => levels,
            Xray::All => usize::MAX,
        };
        Ok(Value::from_serde_json(draw::draw(&graph, depth).to_json()))
    }

    async fn schemas(&self, id: AssistantId) -> Result<Value, Error> {
        let graph = described::graph_of(self, id)?;
        let assistant = Service::assistant(self, id).unwrap_or_default();
        let mut map = Map::with_capacity(6);
        map.insert("graph_id", assistant.get("graph_id").cloned());
        map.extend(described::schemas(&graph));
        Ok(Value::map(map))
    }

    async fn subgraphs(
        &self,
        assistant: AssistantId,
        namespace: Option<String>,
        recurse: bool,
    ) -> Result<Value, Error> {
        let graph = described::graph_of(self, assistant)?;
        Ok(described::subgraphs(&graph, namespace.as_deref(), recurse))
    }
}

impl Service {
    /// How a run ended that this process does not execute: asked of the storage until it is
    /// final.
    async fn end_of(&self, thread: ThreadId, run: RunId) -> Value {
        loop {
            match self.find_run(thread, run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    if let Some(error) = row.error {
                        return failed(error);
                    }
                    return match self.shown_of(thread).await {
                        Ok((values, interrupts)) => ended_body(values, &interrupts),
                        Err(error) => {
                            tracing::warn!(%error, "the values of a run could not be read");
                            Value::map(Map::new())
                        }
                    };
                }
                Ok(Some(row)) => {
                    // Taken over by this process: it knows the end before the row goes.
                    if let Some(live) = self.live(run) {
                        let target = Target { thread, run };
                        return body_of(self.clone(), target, row.temporary, live).await;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                }
                Ok(None) => return failed(no_such_run()),
                Err(error) => {
                    tracing::warn!(%error, "a run could not be read");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// What a thread stands at as `/join` answers it: its open questions, else its values.
fn ended_body(values: Value, interrupts: &Map) -> Value {
    let asked: Vec<Value> = interrupts
        .values()
        .flat_map(|list| list.as_list().unwrap_or_default())
        .cloned()
        .collect();
    match (asked.is_empty(), values) {
        (false, _) => Value::map(Map::from([("__interrupt__", Value::list(asked))])),
        (true, Value::Null) => Value::map(Map::new()),
        (true, values) => values,
    }
}
