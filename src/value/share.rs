//! Hands whole values through serde's generic interfaces without copying them.
//!
//! A `Value` inside a typed struct (a chat message, a free-form field) would be taken apart and
//! put together again by [`to_value`](super::to_value) and [`from_value`](super::from_value),
//! which makes reading a state as long as its history. Serde has no way to pass a foreign type
//! through, so both ends meet in a thread-local slot: `Value` announces itself as a newtype
//! struct with a private name, our own serializer and deserializer recognise the name and open
//! the slot for exactly that one call. Other formats see a transparent newtype.

use std::cell::RefCell;

use super::Value;

/// The name under which a value announces itself.
pub(super) const NAME: &str = "$backstitch::value";

enum Slot {
    /// Nobody of ours is on the other side.
    Closed,
    /// Our serializer waits for a value.
    Waiting,
    /// A value on its way.
    Filled(Value),
}

thread_local! {
    static SLOT: RefCell<Slot> = const { RefCell::new(Slot::Closed) };
}

fn swap(slot: Slot) -> Slot {
    SLOT.with(|cell| cell.replace(slot))
}

/// Our serializer opens the slot before it lets the newtype's content serialize itself.
pub(super) fn expect() {
    swap(Slot::Waiting);
}

/// The content hands a clone over if our serializer waits for it.
pub(super) fn offer(value: &Value) -> bool {
    let waiting = SLOT.with(|cell| matches!(*cell.borrow(), Slot::Waiting));
    if waiting {
        swap(Slot::Filled(value.clone()));
    }
    waiting
}

/// Our deserializer puts a value in before it calls the visitor.
pub(super) fn send(value: Value) {
    swap(Slot::Filled(value));
}

/// Takes what was handed over, and closes the slot.
pub(super) fn take() -> Option<Value> {
    match swap(Slot::Closed) {
        Slot::Filled(value) => Some(value),
        Slot::Closed | Slot::Waiting => None,
    }
}
