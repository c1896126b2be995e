//! Which mistakes of commands a run ignores instead of failing.

/// Mistakes of commands that LangGraph ignores in silence: by default they are errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// A resume value while no node waits for one: nothing happens.
    pub idle_resumes: bool,
    /// Nodes a command goes to, and ids of interrupts: those that do not exist are ignored.
    pub unknown_names: bool,
}

impl Tolerance {
    /// What LangGraph tolerates: all of it.
    pub const LANGGRAPH: Self = Self {
        idle_resumes: true,
        unknown_names: true,
    };
}
