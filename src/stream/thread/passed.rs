//! What those who watch a thread are told of a run whose frames are not replayed, besides its frames.

use std::sync::Arc;

/// A run whose frames only those get who watch at that moment. They ask the storage nothing for it.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The name of its graph.
    pub graph: Arc<str>,
    /// This process has begun to execute it. Of a run that waited here, and was executed elsewhere or never, the frames
    /// are what it left.
    pub has_begun: bool,
    /// Its frames are replayed, by the log, which has its end too unless nobody executed it any more.
    pub is_stored: bool,
    /// How it ended, with the entry of its end; `None` if that is not known here.
    pub end: Option<End>,
}

/// How a run ended, as those who watch its thread see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself: it is through, or waits for an input.
    Success,
    /// By an error with this message; `None` if its frames have it.
    Failed(Option<Arc<str>>),
    /// It was cancelled or deleted.
    Cancelled,
}
