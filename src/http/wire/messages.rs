//! Messages of threads, as clients write and read them.

use schemars::JsonSchema;

use super::{Content, Flag, Id, IdOrEmpty, Limit, Name, Timestamp, runs::CreateRun};
use crate::{
    message,
    runs::Strategy,
    tree::{
        messages::{OnExisting, page::PageView},
        store::rows::Position,
    },
    value::Value,
};

super::schemas! {
    /// The id of a message.
    MessageId = {
        "type": "string", "minLength": 1, "maxLength": message::most_of_new_id(), "pattern": "^[!-~]+$"
    };
    /// A message; what else it has is stored with it.
    Message = {
        "type": "object",
        "properties": {
            "role": {"enum": ["user", "assistant", "system", "tool", "human", "ai"]},
            "id": {"anyOf": [
                {"type": "string", "minLength": 1, "maxLength": message::most_of_new_id(), "pattern": "^[!-~]+$"},
                {"type": "null"}
            ]},
            "content": {"type": ["string", "array"]},
            "tool_calls": {"type": ["array", "null"]}
        },
        "required": ["role", "content"]
    };
    /// What a message says: a text, or a list of parts.
    NotBlank = {
        "anyOf": [
            {"type": "string", "pattern": "\\S"},
            {"type": "array", "minItems": 1, "items": {"type": "object"}}
        ]
    };
}

/// Messages to store: `messages`, or one whose fields stand here.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum PostMessages {
    Several(SeveralMessages),
    One(OneMessage),
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct SeveralMessages {
    /// The messages, in order.
    #[schemars(length(min = 1, max = 1000))]
    messages: Vec<Message>,
    #[serde(flatten)]
    post: Post,
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct OneMessage {
    role: Role,
    id: Option<MessageId>,
    content: Content,
    #[schemars(with = "Option<()>")]
    messages: (),
    #[serde(flatten)]
    post: Post,
}

/// Where messages go, and what follows.
#[derive(JsonSchema)]
struct Post {
    /// The message that they follow.
    parent_id: Option<String>,
    message_id: Option<String>,
    position: Option<Position>,
    /// The branch whose end they extend.
    branch: Option<Name>,
    activate: Option<bool>,
    on_existing: Option<OnExisting>,
    /// The message that the client believes to be the newest; null for none.
    expected_head: Option<String>,
    as_node: Option<String>,
    /// The run that replies to them.
    run: Option<CreateRun>,
    #[serde(rename = "forkedAtConversationId")]
    forked_at_conversation_id: Option<Id>,
    #[serde(rename = "forkedAtEntryId")]
    forked_at_entry_id: Option<String>,
    forked_at_thread_id: Option<Id>,
    forked_at_message_id: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
    System,
    Tool,
    Human,
    Ai,
}

/// A message that a run replies to.
#[derive(JsonSchema)]
pub struct SendMessage {
    thread_id: Id,
    content: NotBlank,
    /// The id of the message.
    message_id: Option<MessageId>,
    /// The message that it follows.
    parent_id: Option<String>,
    branch: Option<Name>,
    /// The assistant that replies; that of the thread, if none is named.
    assistant_id: Option<String>,
    multitask_strategy: Option<Strategy>,
}

/// Which messages are listed.
#[derive(JsonSchema)]
pub struct ListQuery {
    /// The path that ends with this message.
    leaf_id: Option<String>,
    branch: Option<Name>,
    checkpoint_id: Option<Id>,
    leaf: Option<Latest>,
    after: Option<String>,
    before: Option<String>,
    /// Whether the page is the last one.
    tail: Option<Flag>,
    view: Option<PageView>,
    limit: Option<Limit>,
    /// Whether each message has its siblings.
    siblings: Option<Flag>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
enum Latest {
    Latest,
}

/// Messages that were stored.
#[derive(JsonSchema)]
pub struct StoredMessages {
    thread_id: Id,
    branch: String,
    branch_created: bool,
    checkpoint_id: Option<Id>,
    event_number: Option<i64>,
    run_id: Option<Id>,
    messages: Vec<MessageItem>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// A message whose run is on its way.
#[derive(JsonSchema)]
pub struct PostedMessage {
    thread_id: Id,
    event_id: Id,
    event_number: i64,
    message_id: String,
    run_id: Id,
    branch: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// A page of messages.
#[derive(JsonSchema)]
pub struct MessagePage {
    thread_id: Id,
    branch: Option<String>,
    leaf_id: Option<String>,
    checkpoint_id: Option<Id>,
    messages: Vec<MessageItem>,
    /// The cursor of the next page.
    next: Option<String>,
    prev: Option<String>,
    /// The page ends between a call of a tool and its result.
    #[schemars(skip_serializing_if = "Option::is_none")]
    splits_tool_calls: Option<bool>,
}

/// A message in the conversation tree.
#[derive(JsonSchema)]
pub struct MessageItem {
    message_id: String,
    parent_id: Option<String>,
    role: Option<String>,
    content: Value,
    depth: Option<i64>,
    checkpoint_id: Option<IdOrEmpty>,
    settled_checkpoint_id: Option<IdOrEmpty>,
    event_number: Option<i64>,
    thread_id: Id,
    /// It belongs to a thread that this one is a fork of.
    inherited: bool,
    edited: bool,
    edit_of: Option<String>,
    in_state: bool,
    created_at: Option<Timestamp>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    siblings: Option<Siblings>,
    /// The message as it was, in a comparison.
    #[schemars(skip_serializing_if = "Option::is_none")]
    from: Option<Box<MessageItem>>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Siblings {
    index: i64,
    count: i64,
    message_ids: Vec<String>,
}
