//! Passes whole values through serde's generic interfaces without copying them.
//!
//! A `Value` inside a typed struct (a chat message, a free-form field) would be taken apart and
//! put together again by [`to_value`](super::to_value) and [`from_value`](super::from_value),
//! which makes reading a state as long as its history. Serde has no way to pass a foreign type
//! through, so the value passes through a thread-local slot: `Value` announces itself as a
//! newtype struct with a private name, and this crate's serializer and deserializer recognise the
//! name and open the slot for exactly that one call. Other formats see a transparent newtype.

use std::cell::RefCell;

use super::Value;

/// The name under which a value announces itself.
pub(super) const NAME: &str = "$backstitch::value";

enum Slot {
    /// Neither of this crate's formats is at work.
    Closed,
    /// This crate's serializer waits for a value.
    Waiting,
    /// A value to be taken.
    Filled(Value),
}

thread_local! {
    static SLOT: RefCell<Slot> = const { RefCell::new(Slot::Closed) };
}

fn swap(slot: Slot) -> Slot {
    SLOT.with(|cell| cell.replace(slot))
}

/// Opens the slot; called by this crate's serializer before the newtype's content serializes
/// itself.
pub(super) fn expect() {
    swap(Slot::Waiting);
}

/// Puts a clone of the content into the slot if this crate's serializer waits for it, and returns
/// whether it did.
pub(super) fn offer(value: &Value) -> bool {
    let waiting = SLOT.with(|cell| matches!(*cell.borrow(), Slot::Waiting));
    if waiting {
        swap(Slot::Filled(value.clone()));
    }
    waiting
}

/// Fills the slot; called by this crate's deserializer before it calls the visitor.
pub(super) fn send(value: Value) {
    swap(Slot::Filled(value));
}

/// Takes the value out of the slot and closes it.
pub(super) fn take() -> Option<Value> {
    match swap(Slot::Closed) {
        Slot::Filled(value) => Some(value),
        Slot::Closed | Slot::Waiting => None,
    }
}
