//! Messages of threads: storing them, sending them to be answered, and reading them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::{
    Created, Error, Service, Strategy, plain,
    request::{self, Assistant},
};
use crate::{
    graph::{Compiled, START},
    id::{CheckpointId, EventId, RunId, ThreadId, TreeId},
    tree::{
        self, Base, event,
        fork::{self, Lineage},
        messages::{
            Incoming, Post,
            content::MessageContents,
            item::{self, MessageItem, PageEntry},
            page::{self, MessagePage},
            path::MessagePath,
            post::{Posted, TargetGraph, post},
            send::{SendTarget, choose_branch},
            trim::trim,
        },
        resolve,
        store::rows::{Branch, NewEvent, ThreadRow},
    },
    value::{Map, Value},
};

/// Messages to store, and perhaps a run that answers them.
#[derive(Clone, Debug)]
pub struct NewPost {
    /// The messages.
    pub post: Post,
    /// A run without input on the branch that holds them.
    pub run: Option<request::Run>,
    /// The thread they fork, if their own does not exist yet.
    pub lineage: Option<Lineage>,
    /// Whose request it is.
    pub by: Arc<str>,
}

/// Messages that are stored.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Name of the branch that holds them.
    pub branch: Arc<str>,
    /// It was made for them.
    pub created: bool,
    /// They were not there before.
    pub fresh: bool,
    /// The checkpoint that ends with them.
    pub checkpoint: Option<CheckpointId>,
    /// Number of the last event that was written; of the thread's last one if none was.
    pub event_number: i64,
    /// The run that answers them.
    pub run: Option<RunId>,
    /// They, in the order of the request.
    pub messages: Vec<MessageItem>,
    /// The conversation before them ended in tool calls that are not answered.
    pub dangling: bool,
}

/// A user's message that a run is to answer.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The thread.
    pub thread: ThreadId,
    /// Its content.
    pub content: Value,
    /// Where it goes.
    pub to: SendTarget,
    /// Who answers; the thread's assistant without one.
    pub assistant: Option<Assistant>,
    /// What to do with other runs of the slot.
    pub strategy: Strategy,
}

/// A message that waits for its run.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The event that tells of it.
    pub event: EventId,
    /// Its number.
    pub event_number: i64,
    /// The message.
    pub message: Arc<str>,
    /// The run.
    pub run: RunId,
    /// Name of the branch it was sent to.
    pub branch: Arc<str>,
    /// The conversation there ends in tool calls that are not answered.
    pub dangling: bool,
}

/// Lets posts to one tree follow each other without a connection each: the tree's row would let
/// them wait too.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<TreeId, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(super) async fn of(&self, tree: TreeId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            // Nobody holds or waits for those that only the map knows.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(tree).or_default().clone()
        };
        turn.lock_owned().await
    }
}

/// What messages of a thread are stored with.
pub(super) struct Setting {
    pub graph: Arc<Compiled>,
    pub assigned: bool,
    pub channel: Arc<str>,
}

impl Service {
    /// Stores messages without running anything, and creates the run that is asked for with them.
    ///
    /// # Errors
    /// 400 `invalid_id`, 404, 409 `head_conflict`, `branch_busy`, `message_exists` or
    /// `no_messages_channel`; what the run or the graph refuses; the storage failed.
    pub async fn post_messages(&self, id: ThreadId, new: NewPost) -> Result<Answer, Error> {
        let Some(request) = &new.run else {
            return Ok(self.posted(id, &new, None).await?.0);
        };
        let prepared = self.prepare(id, request)?;
        let run = prepared.id;
        match self.posted(id, &new, Some((request, prepared))).await {
            Ok((mut answer, created)) => {
                match created {
                    Some(created) => {
                        self.launch(request, run, created).await?;
                        answer.run = Some(run);
                    }
                    None => self.discard(run),
                }
                Ok(answer)
            }
            Err(error) => {
                self.discard(run);
                Err(error)
            }
        }
    }

    async fn posted(
        &self,
        id: ThreadId,
        request: &NewPost,
        run: Option<(&request::Run, super::within::Prepared)>,
    ) -> Result<(Answer, Option<Created>), Error> {
        let new = &request.post;
        let lineage = request.lineage.as_ref();
        let mut reader = self.inner.parts.tree.reader().await?;
        let tree = fork::tree_of(&mut *reader, id, lineage).await?;
        drop(reader);
        let _turn = self.inner.turns.of(tree).await;
        let mut tx = self.inner.parts.runs.begin(tree).await?;
        let (thread, forked) = fork::find_or_create(&mut *tx, id, lineage, &request.by).await?;
        if let Some((branch, base)) = forked {
            self.cut(&mut *tx, &thread, branch, &base).await?;
        }
        let graph = match &run {
            Some((request, _)) => Some(self.registered(&request.assistant)?.1.graph.clone()),
            None => None,
        };
        let setting = self.setting(&thread, graph)?;
        if let Some(node) = &new.as_node
            && &**node != START
            && !(setting.assigned && setting.graph.node(node).is_some())
        {
            return Err(tree::Error::invalid(format!("Node {node} does not exist")).into());
        }
        let values = self.values(&thread, &setting);
        let target = TargetGraph {
            graph: &setting.graph,
            assigned: setting.assigned,
        };
        let posted = post(&mut *tx, &values, &target, &thread, new).await?;
        let mut created = None;
        if let Some((_, mut prepared)) = run.filter(|_| posted.fresh) {
            prepared.new.branch = Some(posted.branch.id);
            let outcome = tx.create_run(prepared.new).await?;
            if let Some(refusal) = super::within::refused(prepared.id, &outcome) {
                return Err(refusal);
            }
            created = Some(outcome);
        }
        let messages = items(&mut *tx, &values, &thread, &posted).await?;
        let row = resolve::thread(&mut *tx, id).await?;
        tx.commit().await?;
        if let Some(state) = posted.state {
            self.inner.cache.insert(tree, state);
        }
        // Runs that float may have found a free slot.
        self.inner.wake.notify_one();
        self.inner.news.tell(id);
        let answer = Answer {
            branch: posted.branch.name,
            created: posted.created,
            fresh: posted.fresh,
            checkpoint: posted.checkpoint,
            event_number: row.last_event_number,
            run: None,
            messages,
            dangling: posted.dangling,
        };
        Ok((answer, created))
    }

    /// Sends a message to be answered by a run of its own: both are durable when this returns. One
    /// that was sent before with this id and content has the answer it had then.
    ///
    /// # Errors
    /// 400 `invalid_id`, 404, 409 `message_exists` or `no_messages_channel`, 422 without an
    /// assistant; the slot is taken and the request says `reject`; the storage failed.
    pub async fn send_message(&self, new: NewMessage) -> Result<Sent, Error> {
        let tree = self.tree_of(new.thread).await?;
        let turn = self.inner.turns.of(tree).await;
        let mut tx = self.inner.parts.runs.begin(tree).await?;
        let thread = resolve::thread(&mut *tx, new.thread).await?;
        let assistant = assistant_of(&new, &thread)?;
        let (_, registered) = self.registered(&assistant).map_err(|error| match error {
            Error::NoThreadOrAssistant => no_assistant(),
            other => other,
        })?;
        let graph = registered.graph.clone();
        let setting = self.setting(&thread, Some(graph))?;
        if !setting.graph.input.contains(&setting.channel) {
            return Err(no_channel());
        }
        let values = self.values(&thread, &setting);
        let target = TargetGraph {
            graph: &setting.graph,
            assigned: true,
        };
        if let Some(sent) = self.sent_before(&mut *tx, &thread, &values, &new).await? {
            return Ok(sent);
        }
        let aim = choose_branch(&mut *tx, &values, &target, &thread, &new.to).await?;
        let message: Arc<str> = match &new.to.id {
            Some(id) => id.clone(),
            None => Uuid::new_v4().to_string().into(),
        };
        let mut request = request::Run::of(assistant);
        request.multitask_strategy = new.strategy;
        request.input = Some(input(&setting.channel, &message, new.content));
        let mut prepared = self.prepare(thread.id, &request)?;
        prepared.new.branch = aim.pinned.then_some(aim.branch.id);
        let run = prepared.id;
        let told = NewEvent {
            kind: event::USER_MESSAGE_ADDED,
            branch: Some(aim.branch.id),
            message_id: Some(message.clone()),
            ..NewEvent::default()
        };
        let written = async {
            let number = tx.append(tree, thread.id, vec![told]).await?;
            prepared.announce(&message, number)?;
            let created = tx.create_run(prepared.new).await?;
            if let Some(refusal) = super::within::refused(run, &created) {
                return Err(refusal);
            }
            let branch = match (aim.pinned, new.strategy) {
                // The branch may have gone with the run that made it.
                (false, Strategy::Rollback) => {
                    let thread = resolve::thread(&mut *tx, new.thread).await?;
                    resolve::active(&mut *tx, &thread).await?.name
                }
                _ => aim.branch.name,
            };
            tx.commit().await?;
            Ok::<_, Error>((number, created, branch))
        };
        let (number, created, branch) = match written.await {
            Ok(written) => written,
            Err(error) => {
                self.discard(run);
                return Err(error);
            }
        };
        drop(turn);
        self.inner.news.tell(thread.id);
        self.launch(&request, run, created).await?;
        Ok(Sent {
            event: event::id(thread.id, number),
            event_number: number,
            message,
            run,
            branch,
            dangling: aim.dangling,
        })
    }

    /// Reads a page of messages.
    ///
    /// # Errors
    /// 400 `invalid_id` or `invalid_cursor`, 404, 409 `no_messages_channel`, or the storage
    /// failed.
    pub async fn read_messages(
        &self,
        id: ThreadId,
        request: &page::PageRequest,
    ) -> Result<MessagePage, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let thread = resolve::thread(&mut *reader, id).await?;
        let setting = self.setting(&thread, None)?;
        let values = self.values(&thread, &setting);
        Ok(page::read_page(&mut *reader, &values, &thread, request).await?)
    }

    /// Cuts off at the head of a branch that was just made what its base has beyond the place that
    /// was asked for; answers the branch as it is then.
    pub(super) async fn cut(
        &self,
        tx: &mut dyn tree::Tx,
        thread: &ThreadRow,
        branch: Branch,
        base: &Base,
    ) -> Result<Branch, Error> {
        let Base::Trim { of, drop } = base else {
            return Ok(branch);
        };
        let setting = self.setting(thread, None)?;
        let values = self.values(thread, &setting);
        trim(tx, &values, &setting.graph, &branch, of, drop).await?;
        let cut = tx.branch(thread.tree, branch.id).await?;
        Ok(cut.unwrap_or(branch))
    }

    async fn tree_of(&self, id: ThreadId) -> Result<TreeId, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        Ok(resolve::thread(&mut *reader, id).await?.tree)
    }

    /// The channel of the thread's messages in `graph`, else in the thread's own.
    pub(super) fn setting(
        &self,
        thread: &ThreadRow,
        graph: Option<Arc<Compiled>>,
    ) -> Result<Setting, Error> {
        let own = || Some(self.graph_in(&thread.metadata)?.graph.clone());
        let Some(graph) = graph.or_else(own) else {
            let graph = plain::graph().ok_or_else(no_channel)?;
            return Ok(Setting {
                graph,
                assigned: false,
                channel: "messages".into(),
            });
        };
        let channel = graph.message_channel().cloned().ok_or_else(no_channel)?;
        Ok(Setting {
            graph,
            assigned: true,
            channel,
        })
    }

    pub(super) fn values(&self, thread: &ThreadRow, setting: &Setting) -> MessageContents<'_> {
        MessageContents {
            saver: &self.inner.parts.saver,
            cache: &self.inner.cache,
            tree: thread.tree,
            thread: thread.id,
            channel: setting.channel.clone(),
        }
    }
}

/// Stored messages as the path of their branch shows them.
async fn items(
    tx: &mut dyn tree::Tx,
    values: &MessageContents<'_>,
    thread: &ThreadRow,
    posted: &Posted,
) -> Result<Vec<MessageItem>, Error> {
    let head = match &posted.state {
        Some(state) => Some(state.checkpoint.id),
        None => posted.branch.head,
    };
    let point = match head {
        Some(head) => tx.point(thread.tree, head).await?,
        None => None,
    };
    let state = match (&posted.state, head) {
        (Some(state), _) => values.of_state(state),
        (None, Some(head)) => values.messages(head).await?.unwrap_or_default(),
        (None, None) => Default::default(),
    };
    let path = MessagePath {
        point,
        last: posted.nodes.last().cloned(),
        ..MessagePath::default()
    };
    let places = posted
        .nodes
        .iter()
        .cloned()
        .map(PageEntry::OnPath)
        .collect();
    Ok(item::items(tx, values, thread, &path, &state, places).await?)
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

fn assistant_of(new: &NewMessage, thread: &ThreadRow) -> Result<Assistant, Error> {
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

fn no_channel() -> Error {
    tree::Error::conflict(
        "no_messages_channel",
        "The graph of the thread has no channel for messages: change its state with POST \
         /threads/{thread_id}/state",
    )
    .into()
}

/// Whether a content says nothing.
pub fn is_blank(content: &Value) -> bool {
    match content {
        Value::Str(text) => text.trim().is_empty(),
        Value::List(parts) => parts.iter().all(|part| match part {
            Value::Map(map) if map.get("type").and_then(Value::as_str) == Some("text") => {
                map.get("text").is_none_or(is_blank)
            }
            Value::Map(map) => map.is_empty(),
            other => is_blank(other),
        }),
        Value::Null => true,
        _ => false,
    }
}

/// Messages that name one id twice cannot all be kept.
pub fn first_twice(messages: &[Incoming]) -> Option<&Arc<str>> {
    let mut seen = std::collections::HashSet::new();
    let mut ids = messages.iter().filter_map(|one| one.id.as_ref());
    ids.find(|id| !seen.insert(*id))
}
