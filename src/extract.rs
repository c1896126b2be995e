//! What a node may ask for: its state, an argument, configuration, dependencies, and `Ctx`.

pub mod ctx;

pub use ctx::{Ctx, Host, RunConfig, Task};
