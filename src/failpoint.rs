//! Named points where tests make the program fail, wait or die; compiled out without the feature
//! `failpoints`.
//!
//! With it, `FAILPOINTS="checkpoint.commit=abort@3;runs.claim=sleep(200)"` arms points for a
//! process, and [`set`] for the time of a test. `while(file)` waits as long as a file exists, which a test
//! makes and removes while another process runs.

/// A point where a test may interfere.
///
/// `fail_point!("name")` panics, aborts, or blocks the thread to wait.
/// `fail_point!("name", error)` can also return `Err(error)` from the function around it.
/// `fail_point!(async "name")` and `fail_point!(async "name", error)` do the same in a future, and
/// wait on the runtime's clock.
#[macro_export]
#[doc(hidden)]
macro_rules! fail_point {
    (async $name:literal $(, $error:expr)?) => {
        #[cfg(feature = "failpoints")]
        if $crate::failpoint::reached_async($name).await {
            $(return Err($error);)?
        }
    };
    ($name:literal $(, $error:expr)?) => {
        #[cfg(feature = "failpoints")]
        if $crate::failpoint::reached($name) {
            $(return Err($error);)?
        }
    };
}

#[cfg(feature = "failpoints")]
pub use armed::{Action, Armed, Error, hits, load, reached, reached_async, set, set_at};

#[cfg(feature = "failpoints")]
mod armed {
    use std::{
        collections::HashMap,
        path::Path,
        str::FromStr,
        sync::{Arc, LazyLock},
        time::Duration,
    };

    use parking_lot::Mutex;

    /// What a test makes a point do.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Action {
        /// The thread panics.
        Panic,
        /// The process dies at once, as by `kill -9`.
        Abort,
        /// It waits this long.
        Sleep(Duration),
        /// It waits as long as this file exists.
        While(Arc<Path>),
        /// The error that the point names is returned; nothing happens at a point without one.
        Error,
    }

    /// An entry of `FAILPOINTS` was not understood.
    #[derive(Debug, thiserror::Error)]
    #[error(
        "FAILPOINTS: `{0}` is not of the form name=panic, abort, error, sleep(milliseconds) or while(file), \
         with @N after it for the N-th time alone"
    )]
    pub struct Error(String);

    #[derive(Default)]
    struct Point {
        action: Option<Action>,
        /// Only at this hit, counted from 1; at every hit if none.
        at: Option<u64>,
        hits: u64,
    }

    type Points = HashMap<String, Point>;

    /// A broken `FAILPOINTS` arms nothing here; [`load`] reports it.
    static POINTS: LazyLock<Mutex<Points>> =
        LazyLock::new(|| Mutex::new(environment().unwrap_or_default()));

    /// Arms a point until it is dropped.
    #[derive(Debug)]
    #[must_use = "the point is disarmed when this is dropped"]
    pub struct Armed(String);

    impl Drop for Armed {
        fn drop(&mut self) {
            POINTS.lock().remove(&self.0);
        }
    }

    /// Arms a point of this process at every hit, until the returned guard is dropped.
    pub fn set(name: &str, action: Action) -> Armed {
        arm(name, action, None)
    }

    /// Arms a point of this process at its `hit`-th hit from now on, counted from 1.
    pub fn set_at(name: &str, action: Action, hit: u64) -> Armed {
        arm(name, action, Some(hit))
    }

    fn arm(name: &str, action: Action, at: Option<u64>) -> Armed {
        POINTS.lock().insert(
            name.to_owned(),
            Point {
                action: Some(action),
                at,
                hits: 0,
            },
        );
        Armed(name.to_owned())
    }

    /// How often a point was reached since it was armed, or at all if it never was.
    pub fn hits(name: &str) -> u64 {
        POINTS.lock().get(name).map_or(0, |point| point.hits)
    }

    /// Reads `FAILPOINTS`, so that a mistake in it is reported before the first point is reached.
    ///
    /// # Errors
    /// When an entry is not understood.
    pub fn load() -> Result<(), Error> {
        environment().map(drop)
    }

    fn environment() -> Result<Points, Error> {
        parse(&std::env::var("FAILPOINTS").unwrap_or_default())
    }

    fn parse(text: &str) -> Result<Points, Error> {
        let entries = text
            .split(';')
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        entries
            .map(|entry| {
                let wrong = || Error(entry.to_owned());
                let (name, rest) = entry.split_once('=').ok_or_else(wrong)?;
                let (action, at) = match rest.split_once('@') {
                    Some((action, at)) => (action, Some(at.parse().map_err(|_| wrong())?)),
                    None => (rest, None),
                };
                let action = action.parse().map_err(|()| wrong())?;
                Ok((
                    name.to_owned(),
                    Point {
                        action: Some(action),
                        at,
                        hits: 0,
                    },
                ))
            })
            .collect()
    }

    impl FromStr for Action {
        type Err = ();

        fn from_str(text: &str) -> Result<Self, ()> {
            match text {
                "panic" => Ok(Self::Panic),
                "abort" => Ok(Self::Abort),
                "error" => Ok(Self::Error),
                _ => {
                    let (name, rest) = text.split_once('(').ok_or(())?;
                    let inner = rest.strip_suffix(')').ok_or(())?;
                    match name {
                        "sleep" => {
                            let milliseconds = inner.parse().map_err(|_| ())?;
                            Ok(Self::Sleep(Duration::from_millis(milliseconds)))
                        }
                        "while" if !inner.is_empty() => Ok(Self::While(Path::new(inner).into())),
                        _ => Err(()),
                    }
                }
            }
        }
    }

    /// Counts a hit and returns what the point does at it.
    fn hit(name: &str) -> Option<Action> {
        let mut points = POINTS.lock();
        let point = points.entry(name.to_owned()).or_default();
        point.hits += 1;
        point
            .action
            .clone()
            .filter(|_| point.at.is_none_or(|at| at == point.hits))
    }

    /// Does what the point is armed for; returns true if the point must return its error. For [`crate::fail_point!`].
    pub fn reached(name: &str) -> bool {
        match act(name) {
            Act::Wait(time) => {
                std::thread::sleep(time);
                false
            }
            Act::While(file) => {
                while file.exists() {
                    std::thread::sleep(POLL);
                }
                false
            }
            Act::Done(error) => error,
        }
    }

    /// As [`reached`], in a future. For [`crate::fail_point!`].
    pub async fn reached_async(name: &str) -> bool {
        match act(name) {
            Act::Wait(time) => {
                tokio::time::sleep(time).await;
                false
            }
            Act::While(file) => {
                while file.exists() {
                    tokio::time::sleep(POLL).await;
                }
                false
            }
            Act::Done(error) => error,
        }
    }

    /// How often it is seen whether a file exists.
    const POLL: Duration = Duration::from_millis(5);

    enum Act {
        Wait(Duration),
        While(Arc<Path>),
        Done(bool),
    }

    #[expect(clippy::panic, reason = "a test asked for it")]
    fn act(name: &str) -> Act {
        match hit(name) {
            None => Act::Done(false),
            Some(Action::Panic) => panic!("fail point {name}"),
            Some(Action::Abort) => std::process::abort(),
            Some(Action::Sleep(time)) => {
                tracing::info!(point = name, "a fail point was reached");
                Act::Wait(time)
            }
            Some(Action::While(file)) if file.exists() => {
                tracing::info!(point = name, "a fail point was reached");
                Act::While(file)
            }
            Some(Action::While(_)) => Act::Done(false),
            Some(Action::Error) => Act::Done(true),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn store() -> Result<u8, &'static str> {
            crate::fail_point!("tests.store", "out of order");
            Ok(7)
        }

        #[test]
        fn a_point_fails_while_it_is_armed() {
            let armed = set("tests.store", Action::Error);
            assert_eq!(store(), Err("out of order"));
            drop(armed);
            assert_eq!(store(), Ok(7));
        }

        #[test]
        fn a_point_can_be_armed_for_one_hit_alone() {
            fn third() -> Result<(), ()> {
                crate::fail_point!("tests.third", ());
                Ok(())
            }
            let _armed = set_at("tests.third", Action::Error, 3);
            assert_eq!(
                [third(), third(), third(), third()],
                [Ok(()), Ok(()), Err(()), Ok(())]
            );
            assert_eq!(hits("tests.third"), 4);
        }

        #[tokio::test(start_paused = true)]
        async fn a_sleep_in_a_future_is_on_the_clock_of_the_runtime() {
            let _armed = set("tests.sleep", Action::Sleep(Duration::from_secs(3600)));
            let before = tokio::time::Instant::now();
            crate::fail_point!(async "tests.sleep");
            assert_eq!(before.elapsed().as_secs(), 3600);
        }

        #[test]
        fn a_point_can_wait_as_long_as_a_file_exists() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let _armed = set("tests.while", Action::While(file.path().into()));
            let waiting = std::thread::spawn(|| {
                crate::fail_point!("tests.while");
            });
            while hits("tests.while") == 0 {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished());
            file.close().unwrap();
            waiting.join().unwrap();
        }

        #[test]
        #[should_panic(expected = "fail point tests.panic")]
        fn a_panic_names_its_point() {
            let _armed = set("tests.panic", Action::Panic);
            crate::fail_point!("tests.panic");
        }

        #[test]
        fn the_environment_s_form_is_read_and_mistakes_are_named() {
            let points = parse("a=abort@3; b=sleep(20);c=while(/a/file)").unwrap();
            let action = |name: &str| points[name].action.clone().unwrap();
            assert_eq!((action("a"), points["a"].at), (Action::Abort, Some(3)));
            assert_eq!(action("b"), Action::Sleep(Duration::from_millis(20)));
            assert_eq!(action("c"), Action::While(Path::new("/a/file").into()));
            for wrong in ["a", "a=explode", "a=sleep(x)", "a=while()", "a=abort@x"] {
                assert!(parse(wrong).err().unwrap().to_string().contains(wrong));
            }
        }
    }
}
