//! Sending a message to be answered by a run of its own.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    assistants::{self, Assistant},
    fail_point,
    id::{EventId, RunId, ThreadId},
    runs::{
        Strategy, refusal,
        request::{Requester, Run},
        shared::no_channel,
    },
    threads::{Error, Result, Service},
    tree::{
        self, event,
        messages::send::{SendTarget, choose_branch},
        resolve,
        store::rows::{NewEvent, ThreadRow},
    },
    value::{Map, Value},
};

/// A user's message that a run is to answer.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The thread.
    pub thread: ThreadId,
    /// Its content.
    pub content: Value,
    /// Where it goes.
    pub to: SendTarget,
    /// The assistant that answers; the thread's own without one.
    pub assistant: Option<Assistant>,
    /// What to do with other runs of the slot.
    pub strategy: Strategy,
    /// Who requests the run.
    pub requester: Requester,
}

/// A message that waits for its run.
#[derive(Clone, Debug)]
pub struct QueuedMessage {
    /// The event of the message.
    pub event: EventId,
    /// Its number.
    pub event_number: i64,
    /// The message.
    pub message: Arc<str>,
    /// The run.
    pub run: RunId,
    /// Name of the branch it goes to.
    pub branch: Arc<str>,
    /// The conversation there ends in tool calls without results.
    pub dangling: bool,
}

impl Service {
    /// Queues a message with a run of its own that answers it: both are durable when this returns. A
    /// duplicate, by id and content, has the response of the first request.
    ///
    /// # Errors
    /// 400 `invalid_id`, 404, 409 `message_exists` or `no_messages_channel`, 422 without an
    /// assistant; the slot is taken and the strategy is `reject`; the storage failed.
    pub async fn send_message(&self, new: NewMessage) -> Result<QueuedMessage> {
        let tree = self.tree_of(new.thread).await?;
        let memory = self.change_memory();
        // Before anything is locked, since it may take time.
        let access = &new.requester.access;
        let leads = self.runs.close_leads(access, new.thread, new.strategy);
        let _leads = leads.await;
        let lock = self.shared.turn(tree).await?;
        let mut tx = self.shared.parts.runs.begin(tree).await?;
        let thread = self.checked(&mut *tx, tree, new.thread).await?;
        fail_point!(async "threads.send");
        let assistant = assistant_of(&new, &thread)?;
        let viewer = self.access.principal();
        let resolved = self.shared.assistants.resolve(viewer, &assistant).await;
        let resolved = resolved.map_err(|error| match error {
            assistants::Error::NoAssistant => no_assistant(),
            other => other.into(),
        })?;
        let graph = resolved.registered.graph.clone();
        let target = self.shared.message_graph(&thread, Some(graph))?;
        if !target.graph.input.contains(&target.channel) {
            return Err(no_channel().into());
        }
        let channel = &target.channel;
        let values = self
            .shared
            .conversation_in(&thread, channel.clone(), Some(&memory));
        let duplicate = self.find_duplicate(&mut *tx, &thread, (&values, &memory), &new);
        if let Some(queued) = duplicate.await? {
            return Ok(queued);
        }
        let aim = choose_branch(&mut *tx, &values, &target.target(), &thread, &new.to).await?;
        let message: Arc<str> = match &new.to.id {
            Some(id) => id.clone(),
            None => Uuid::new_v4().to_string().into(),
        };
        let mut request = Run::of(assistant, new.requester);
        request.multitask_strategy = new.strategy;
        request.input = Some(input(channel, &message, new.content));
        let mut prepared = self.runs.prepare(thread.id, &mut request).await?;
        prepared.new.branch = aim.pinned.then_some(aim.branch.id);
        let run = prepared.registration.run();
        let added = NewEvent {
            kind: event::USER_MESSAGE_ADDED,
            branch: Some(aim.branch.id),
            message_id: Some(message.clone()),
            ..NewEvent::default()
        };
        let written = async {
            let number = tx.append(tree, thread.id, vec![added]).await?;
            prepared.announce(&message, number)?;
            let created = tx.create_run(prepared.new).await?;
            if let Some(error) = refusal(run, &created) {
                return Err(error.into());
            }
            let branch = match (aim.pinned, new.strategy) {
                // The branch may be gone with the run that created it.
                (false, Strategy::Rollback) => {
                    let thread = resolve::thread(&mut *tx, new.thread).await?;
                    resolve::active(&mut *tx, &thread).await?.name
                }
                _ => aim.branch.name,
            };
            tx.commit().await?;
            Ok::<_, Error>((number, created, branch, prepared.registration))
        };
        let (number, created, branch, registration) = written.await?;
        drop((lock, memory));
        self.shared.notifier.notify(thread.id);
        self.runs.launch(&request, registration, created).await?;
        Ok(QueuedMessage {
            event: event::id(thread.id, number),
            event_number: number,
            message,
            run,
            branch,
            dangling: aim.dangling,
        })
    }
}

fn input(channel: &Arc<str>, id: &Arc<str>, content: Value) -> Value {
    let message = Map::from([
        ("type", "human".into()),
        ("content", content),
        ("id", Value::Str(id.clone())),
    ]);
    let mut map = Map::new();
    map.insert(channel.clone(), Value::list(vec![Value::map(message)]));
    Value::map(map)
}

fn assistant_of(new: &NewMessage, thread: &ThreadRow) -> Result<Assistant> {
    if let Some(assistant) = &new.assistant {
        return Ok(assistant.clone());
    }
    let text = |key| thread.metadata.get(key).and_then(Value::as_str);
    if let Some(id) = text("assistant_id").and_then(|id| id.parse().ok()) {
        return Ok(Assistant::Id(id));
    }
    match text("graph_id") {
        Some(name) => Ok(Assistant::Graph(name.into())),
        None => Err(no_assistant()),
    }
}

fn no_assistant() -> Error {
    tree::Error::invalid(
        "The thread has no assistant yet: say with assistant_id who is to answer the message",
    )
    .into()
}
