//! Chat messages.
