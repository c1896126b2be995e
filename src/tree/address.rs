//! The address in a request: which branch, tag, checkpoint, message or event it means. Only its
//! form is checked here.

use std::sync::Arc;

use super::{
    error::{Error, Result},
    store::Position,
};
use crate::id::CheckpointId;

/// Longest name of a branch or a tag, in bytes.
pub const NAME_MAX: usize = 128;

/// The address fields of a request, as submitted. Several fields may carry one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressFields {
    /// `branch`.
    pub branch: Option<Arc<str>>,
    /// `tag`.
    pub tag: Option<Arc<str>>,
    /// `checkpoint_id`, `checkpoint.checkpoint_id`, `config.configurable.checkpoint_id`.
    pub checkpoints: Vec<CheckpointId>,
    /// `parent_id` and `message_id`.
    pub messages: Vec<Arc<str>>,
    /// One of them is `parent_id`.
    pub as_parent: bool,
    /// `event_number`.
    pub event: Option<i64>,
    /// `position`.
    pub position: Option<Position>,
}

/// The thing that an address names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressTarget {
    /// Nothing: the head of the active branch.
    #[default]
    Active,
    /// The head of a branch.
    Branch(Arc<str>),
    /// The checkpoint that a tag names.
    Tag(Arc<str>),
    /// A checkpoint.
    Checkpoint(CheckpointId),
    /// A message.
    Message(Arc<str>),
    /// An event of the thread, or of those it was forked from.
    Event(i64),
}

/// The point of a thread that a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The thing named.
    pub target: AddressTarget,
    /// Whether the thing itself is meant, or the point before it.
    pub position: Position,
    /// The message was named as a parent: if it is not found, its id must be a UUID.
    pub as_parent: bool,
    /// A branch whose head the checkpoint must be: runs and state updates may name both.
    pub head_of: Option<Arc<str>>,
}

impl Default for Address {
    fn default() -> Self {
        Self::at(AddressTarget::Active)
    }
}

impl Address {
    /// The address of a thing itself.
    pub fn at(target: AddressTarget) -> Self {
        Self {
            target,
            position: Position::At,
            as_parent: false,
            head_of: None,
        }
    }

    /// The head of a branch.
    pub fn branch(name: impl Into<Arc<str>>) -> Self {
        Self::at(AddressTarget::Branch(name.into()))
    }

    /// The checkpoint that a tag names.
    pub fn tag(name: impl Into<Arc<str>>) -> Self {
        Self::at(AddressTarget::Tag(name.into()))
    }

    /// The state that ends with a message.
    pub fn message(id: impl Into<Arc<str>>) -> Self {
        Self::at(AddressTarget::Message(id.into()))
    }

    /// The state before this, for example before a message that is to be replaced.
    #[must_use]
    pub fn before(mut self) -> Self {
        self.position = Position::Before;
        self
    }
}

impl From<CheckpointId> for Address {
    fn from(id: CheckpointId) -> Self {
        Self::at(AddressTarget::Checkpoint(id))
    }
}

impl AddressFields {
    /// The one address that the fields name. `with_branch` allows `branch` beside a checkpoint, which
    /// runs and state updates may name together.
    ///
    /// # Errors
    /// 422: two addresses, or a name that no branch or tag can have.
    pub fn address(self, with_branch: bool) -> Result<Address> {
        let Self {
            branch,
            tag,
            checkpoints,
            messages,
            as_parent,
            event,
            position,
        } = self;
        let mut branch = branch.as_deref().map(parse_name).transpose()?;
        let checkpoint = one(checkpoints, "checkpoint")?;
        let mut head_of = None;
        if with_branch && checkpoint.is_some() {
            head_of = branch.take();
        }
        let mut targets = [
            branch.map(AddressTarget::Branch),
            tag.as_deref()
                .map(parse_name)
                .transpose()?
                .map(AddressTarget::Tag),
            checkpoint.map(AddressTarget::Checkpoint),
            one(messages, "message")?.map(AddressTarget::Message),
            event.map(AddressTarget::Event),
        ]
        .into_iter()
        .flatten();
        let target = targets.next().unwrap_or_default();
        if targets.next().is_some() {
            return Err(Error::invalid(
                "Give one of branch, tag, checkpoint_id, message_id (or parent_id) and \
                 event_number, not several",
            ));
        }
        if let AddressTarget::Event(number) = target
            && number < 1
        {
            return Err(Error::invalid("event_number begins at 1"));
        }
        Ok(Address {
            target,
            position: position.unwrap_or(Position::At),
            as_parent,
            head_of,
        })
    }

    /// Whether the request uses address fields that LangGraph does not have.
    pub fn uses_extensions(&self) -> bool {
        let Self {
            branch,
            tag,
            checkpoints: _,
            messages,
            as_parent: _,
            event,
            position,
        } = self;
        branch.is_some()
            || tag.is_some()
            || !messages.is_empty()
            || event.is_some()
            || position.is_some()
    }

    /// Whether the request names nothing.
    pub fn is_empty(&self) -> bool {
        let Self {
            branch,
            tag,
            checkpoints,
            messages,
            as_parent: _,
            event,
            position: _,
        } = self;
        branch.is_none()
            && tag.is_none()
            && checkpoints.is_empty()
            && messages.is_empty()
            && event.is_none()
    }
}

/// The value that a field and its synonyms agree on.
fn one<T: PartialEq>(values: Vec<T>, what: &str) -> Result<Option<T>> {
    let mut values = values.into_iter();
    let first = values.next();
    if values.all(|value| Some(&value) == first.as_ref()) {
        Ok(first)
    } else {
        Err(Error::invalid(format!(
            "The request names different {what}s: give one"
        )))
    }
}

/// Checks a name of a branch or a tag: 1 to 128 of `A-Z a-z 0-9 . _ / -`, no segment empty, `.` or
/// `..`.
///
/// # Errors
/// 422 for any other text.
pub fn parse_name(text: &str) -> Result<Arc<str>> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    let good = (1..=NAME_MAX).contains(&text.len())
        && text.bytes().all(allowed)
        && text
            .split('/')
            .all(|segment| !matches!(segment, "" | "." | ".."));
    if good {
        return Ok(text.into());
    }
    Err(Error::invalid(format!(
        "Invalid name: 1 to {NAME_MAX} characters of A-Z a-z 0-9 . _ / - are possible, and no \
         segment between slashes may be empty, \".\" or \"..\""
    )))
}

/// Chooses the name of a branch that begins on branch `base`: after `main` comes `main-v2`, then
/// `main-v3`. The number is one more than there are names of that family, or the next free one. A base with
/// two such numbers counts in the family of the name before them, so that names stay short.
pub fn auto_name<'a>(base: &str, taken: impl Iterator<Item = &'a str> + Clone) -> Arc<str> {
    let base = unnumbered(base).and_then(unnumbered).unwrap_or(base);
    let in_family = |name: &str| name == base || unnumbered(name) == Some(base);
    let mut number = 1 + taken.clone().filter(|name| in_family(name)).count();
    loop {
        let suffix = format!("-v{number}");
        // Names are ASCII; of a name at the limit the end is cut off to make room for the number.
        let length = base.len().min(NAME_MAX.saturating_sub(suffix.len()));
        let name = format!("{}{suffix}", base.get(..length).unwrap_or(base));
        if !taken.clone().any(|one| one == name) {
            return name.into();
        }
        number += 1;
    }
}

/// A name without the `-v` and digits at its end, if it has these.
fn unnumbered(name: &str) -> Option<&str> {
    let (name, digits) = name.rsplit_once("-v")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(last: u8) -> CheckpointId {
        CheckpointId(uuid::Uuid::from_u128(u128::from(last)))
    }

    #[test]
    fn a_request_without_address_means_the_active_branch() {
        assert_eq!(
            AddressFields::default().address(false).unwrap(),
            Address::default()
        );
        let before = AddressFields {
            position: Some(Position::Before),
            ..AddressFields::default()
        };
        assert!(before.is_empty());
        assert_eq!(before.address(false).unwrap().position, Position::Before);
    }

    #[test]
    fn two_addresses_are_refused_and_equal_values_may_repeat() {
        let twice = AddressFields {
            checkpoints: vec![checkpoint(1), checkpoint(1)],
            ..AddressFields::default()
        };
        assert_eq!(
            twice.address(false).unwrap().target,
            AddressTarget::Checkpoint(checkpoint(1))
        );
        let message: Arc<str> = "m".into();
        for fields in [
            AddressFields {
                checkpoints: vec![checkpoint(1), checkpoint(2)],
                ..AddressFields::default()
            },
            AddressFields {
                messages: vec![message.clone(), "n".into()],
                ..AddressFields::default()
            },
            AddressFields {
                branch: Some("main".into()),
                tag: Some("t".into()),
                ..AddressFields::default()
            },
            AddressFields {
                branch: Some("main".into()),
                messages: vec![message.clone()],
                ..AddressFields::default()
            },
            AddressFields {
                event: Some(3),
                messages: vec![message],
                ..AddressFields::default()
            },
            AddressFields {
                event: Some(0),
                ..AddressFields::default()
            },
            AddressFields {
                branch: Some("no good".into()),
                ..AddressFields::default()
            },
        ] {
            assert!(fields.clone().address(true).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_branch_stands_beside_a_checkpoint_only_where_that_is_allowed() {
        let both = AddressFields {
            branch: Some("main".into()),
            checkpoints: vec![checkpoint(1)],
            ..AddressFields::default()
        };
        let address = both.clone().address(true).unwrap();
        assert_eq!(address.target, AddressTarget::Checkpoint(checkpoint(1)));
        assert_eq!(address.head_of.as_deref(), Some("main"));
        assert!(both.address(false).is_err());
    }

    #[test]
    fn names_are_ascii_segments() {
        let long = "a".repeat(128);
        for good in ["main", "feature/one", "a.b_c-d", "v1..2", "-", &long] {
            assert!(parse_name(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(129);
        for bad in [
            "", ".", "..", "a/../b", "/a", "a/", "a//b", "a b", "ä", "a\n", "a%2Fb", &too_long,
        ] {
            assert!(parse_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn automatic_names_count_their_family_and_skip_taken_ones() {
        let cases: [(&str, &[&str], &str); 9] = [
            ("main", &["main"], "main-v2"),
            ("main", &["main", "main-v2"], "main-v3"),
            ("main", &["main", "main-v3"], "main-v4"),
            ("main", &["main", "main-v2-v2", "main-vx"], "main-v2"),
            ("main-v2", &["main", "main-v2"], "main-v2-v2"),
            ("main-v2-v2", &["main", "main-v2", "main-v2-v2"], "main-v3"),
            ("main-v2-v2-v2", &["main-v2", "main-v2-v2"], "main-v2-v3"),
            ("-v2-v2", &["-v2-v2"], "-v2-v2-v2"),
            (
                "main",
                &["main", "main-v2", "main-v4", "main-v5"],
                "main-v6",
            ),
        ];
        for (base, taken, expected) in cases {
            assert_eq!(&*auto_name(base, taken.iter().copied()), expected, "{base}");
        }
        let long = "a".repeat(NAME_MAX);
        assert!(parse_name(&auto_name(&long, [&*long].into_iter())).is_ok());
    }
}
