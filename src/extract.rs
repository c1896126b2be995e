//! The parameters of nodes: state, an argument, configuration, dependencies, and `Ctx`.

pub(crate) mod ctx;
mod memory;
pub(crate) mod params;
pub(crate) mod report;
pub(crate) mod route;

pub(crate) use ctx::{CalledGraphs, Host, Task};
pub use ctx::{Callee, Ctx, RunConfig};
pub use memory::FoundItem;
pub use params::{Arg, Config, Dep, Failure, FromTask, Rejection, Requires, View};
pub(crate) use report::{ModelCall, Report, ToolRun};
pub use route::{FromRoute, RouteInput};
