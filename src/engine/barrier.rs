//! What is to be stored before a stream goes on.

/// A point in a stream of events: what comes after it is shown once this is dropped. It travels with what is to be stored
/// first. Where that will never be stored it is [kept up](Self::keep_up), and its stream waits until the run is over, or
/// executed anew.
pub struct Barrier(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Barrier {
    /// One that calls `pass` when it is dropped.
    pub fn new(pass: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(pass)))
    }

    /// Lets nothing pass any more.
    pub fn keep_up(mut self) {
        self.0 = None;
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        if let Some(pass) = self.0.take() {
            pass();
        }
    }
}
