//! What a node may ask for: its state, an argument, configuration, dependencies, and `Ctx`.

pub mod ctx;
pub mod params;

pub use ctx::{Ctx, Host, RunConfig, Task};
pub use params::{Arg, Config, Dep, Failure, FromTask, Rejection, Requires};
