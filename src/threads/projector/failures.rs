//! Threads that could not be read, and whether others are still to be tried.

use crate::{
    checkpoint,
    id::ThreadId,
    threads::{Error, Result},
    tree::projection::Progress,
};

/// The threads of a round whose tables could not be brought up to date, and why.
#[derive(Default)]
pub(super) struct Failures {
    threads: Vec<(ThreadId, Error)>,
    /// Whether something has failed that may pass.
    has_waited: bool,
}

impl Failures {
    /// Records why threads could not be read together; of one thread that it is left out.
    ///
    /// # Errors
    /// It may be so with all of them, one after the other: it may pass, and is not the first of its kind.
    pub fn add(&mut self, threads: &[&Progress], error: Error) -> Result<()> {
        if let Error::Storage(cause) = &error
            && cause.may_pass()
        {
            // What takes too long together may be quick one by one.
            let may_be_quick = threads.len() > 1 && matches!(cause, checkpoint::Error::TookTooLong);
            if !may_be_quick && std::mem::replace(&mut self.has_waited, true) {
                return Err(error);
            }
        }
        if let [progress] = threads {
            self.threads.push((progress.thread, error));
        }
        Ok(())
    }
}

impl From<Failures> for Vec<(ThreadId, Error)> {
    fn from(failures: Failures) -> Self {
        failures.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::TreeId, tree::projection::Projection};

    fn progress() -> Progress {
        let thread = ThreadId::mint();
        Progress {
            tree: TreeId::of_root(thread),
            thread,
            last: 1,
            offsets: [0; Projection::ALL.len()],
            head: None,
        }
    }

    fn slow() -> Error {
        checkpoint::Error::TookTooLong.into()
    }

    fn unavailable() -> Error {
        checkpoint::Error::Unavailable("down".into()).into()
    }

    #[test]
    fn one_slow_thread_is_found_in_halves_and_a_second_one_ends_the_round() {
        let all = [progress(), progress(), progress(), progress()];
        let [a, b, c, d] = all.each_ref();
        let mut failures = Failures::default();
        failures.add(&[a, b, c, d], slow()).unwrap();
        failures.add(&[c, d], slow()).unwrap();
        failures.add(&[d], slow()).unwrap();
        assert!(failures.add(&[a], slow()).is_err());
        let found = Vec::from(failures);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, d.thread);

        let mut failures = Failures::default();
        failures.add(&[a, b, c, d], slow()).unwrap();
        failures.add(&[a, b], slow()).unwrap();
        failures.add(&[c, d], slow()).unwrap();
        assert!(Vec::from(failures).is_empty(), "one by one they are quick");
    }

    #[test]
    fn a_database_that_cannot_be_reached_is_waited_for_once_more() {
        let all = [progress(), progress()];
        let [a, b] = all.each_ref();
        let mut failures = Failures::default();
        failures.add(&[a, b], unavailable()).unwrap();
        assert!(failures.add(&[a], unavailable()).is_err());
        let mut failures = Failures::default();
        failures.add(&[a], unavailable()).unwrap();
        assert!(failures.add(&[b], slow()).is_err());
    }

    #[test]
    fn what_does_not_pass_is_recorded_of_each_thread() {
        let all = [progress(), progress()];
        let [a, b] = all.each_ref();
        let mut failures = Failures::default();
        let broken = || checkpoint::Error::Corrupt("a row".into()).into();
        failures.add(&[a, b], broken()).unwrap();
        failures.add(&[a], broken()).unwrap();
        failures.add(&[b], broken()).unwrap();
        assert_eq!(Vec::from(failures).len(), 2);
    }
}
