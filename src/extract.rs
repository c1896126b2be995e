//! The parameters of nodes: state, an argument, configuration, dependencies, and `Ctx`.

pub(crate) mod ctx;
pub(crate) mod params;
pub(crate) mod report;

pub use ctx::{Ctx, RunConfig};
pub(crate) use ctx::{Host, Task};
pub use params::{Arg, Config, Dep, Failure, FromTask, Rejection, Requires, View};
pub(crate) use report::{ModelCall, Report, ToolRun};
