//! Resolves an address to the checkpoint to build on, among those that a thread sees.

use super::{
    address::{Address, AddressTarget},
    error::{Error, Result},
    messages,
    store::{Branch, MessageNode, Position, Read, ThreadRow},
};

mod base;
mod events;
mod find;
mod nodes;

pub(super) use base::WALK_MAX;
pub use base::{Base, at_message, before_message};
use base::{at_head, existing_checkpoint, parent_of};
use events::{base_at_event, event_row, node_of};
pub(crate) use find::thread_not_found;
pub use find::{active, branch, checkpoint, message, tag, thread};
pub(super) use nodes::is_before;
pub use nodes::{is_on_path, last_inherited, sees};

/// The meaning of an address in a thread.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The checkpoint to build on.
    pub base: Base,
    /// The branch that the address names; the active one without an address.
    pub named: Option<Branch>,
    /// The message that the address names.
    pub message: Option<MessageNode>,
    /// The position in the address. With [`Position::Before`] and a message of a user, clients may
    /// offer that message for editing.
    pub position: Position,
}

impl Resolved {
    /// The message of a user that follows the base.
    pub fn prefill(&self) -> Option<&MessageNode> {
        let message = self.message.as_ref()?;
        let user = matches!(message.role.as_deref(), Some("human" | "user"));
        (self.position == Position::Before && user).then_some(message)
    }
}

/// Resolves an address in a thread.
///
/// # Errors
/// 404: there is no such thing, or the thread does not see it. 400 `invalid_id`: a parent that is
/// not found has an id that is no UUID. 409 `not_checkpointed`: the message of an event is still
/// queued; `head_conflict`: the checkpoint is not the head of the branch named with it. Or the
/// storage failed.
pub async fn resolve(
    read: &mut dyn Read,
    thread: &ThreadRow,
    address: &Address,
) -> Result<Resolved> {
    let mut named = None;
    let at = match &address.target {
        AddressTarget::Active => {
            let branch = active(read, thread).await?;
            let base = at_head(read, thread, &branch).await?;
            named = Some(branch);
            base
        }
        AddressTarget::Branch(name) => {
            let branch = branch(read, thread, name).await?;
            let base = at_head(read, thread, &branch).await?;
            named = Some(branch);
            base
        }
        AddressTarget::Tag(name) => {
            let tag = tag(read, thread, name).await?;
            Base::At(existing_checkpoint(read, thread, tag.checkpoint).await?)
        }
        AddressTarget::Checkpoint(id) => {
            let point = checkpoint(read, thread, *id).await?;
            if let Some(name) = &address.head_of {
                let branch = branch(read, thread, name).await?;
                if branch.head != Some(*id) {
                    return Err(Error::conflict(
                        "head_conflict",
                        format!(
                            "Checkpoint {id} is not the head of branch `{name}`. Name only one \
                             of them, or read the branch's head and try again."
                        ),
                    ));
                }
                named = Some(branch);
            }
            Base::At(point)
        }
        AddressTarget::Message(id) => {
            let head = active(read, thread).await?.head;
            let node = if address.as_parent {
                messages::message(read, thread, id, head).await?
            } else {
                self::message(read, thread, id, head).await?
            };
            let base = match address.position {
                Position::At => at_message(read, thread, &node).await?,
                Position::Before => before_message(read, thread, &node).await?,
            };
            return Ok(Resolved {
                base,
                named: None,
                message: Some(node),
                position: address.position,
            });
        }
        AddressTarget::Event(number) => {
            let (base, node) = match address.position {
                Position::At => base_at_event(read, thread, *number).await?,
                Position::Before => {
                    let (_, row) = event_row(read, thread, *number).await?;
                    let node = node_of(read, thread, &row).await?;
                    let (base, _) = match number {
                        ..=1 => (Base::Empty, None),
                        number => base_at_event(read, thread, number - 1).await?,
                    };
                    (base, node)
                }
            };
            return Ok(Resolved {
                base,
                named: None,
                message: node,
                position: address.position,
            });
        }
    };
    let base = match (address.position, at) {
        (Position::At, base) => base,
        (Position::Before, base) => match base.point() {
            Some(point) => match parent_of(read, thread, point).await? {
                Some(parent) => Base::At(parent),
                None => Base::Empty,
            },
            None => Base::Empty,
        },
    };
    Ok(Resolved {
        base,
        named,
        message: None,
        position: address.position,
    })
}
