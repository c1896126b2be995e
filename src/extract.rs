//! The parameters of nodes: state, an argument, configuration, dependencies, and `Ctx`.

pub(crate) mod ctx;
mod memory;
#[cfg(test)]
mod no_engine;
pub(crate) mod params;
pub(crate) mod report;
pub(crate) mod route;

pub(crate) use ctx::{CalledGraphs, Host, Task};
pub use ctx::{Callee, Ctx, RunConfig};
pub use memory::FoundItem;
#[cfg(test)]
pub(crate) use no_engine::NoEngine;
pub use params::{Arg, Config, Dep, Failure, FromTask, Rejection, Requires, View};
pub(crate) use report::{ModelCall, Report, ToolRun};
pub use route::{FromRoute, RouteInput};
