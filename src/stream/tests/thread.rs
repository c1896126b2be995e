//! The feed of a thread: what its watchers get, in which order, and what is dropped.

use futures::FutureExt;

use super::*;
use crate::engine::Sink;

/// A stream of a run of a thread, in a hub.
fn run(hub: &Hub, thread: ThreadId, resumable: bool) -> Arc<Publisher> {
    let mut options = options(&[Mode::Custom]);
    (options.thread, options.resumable) = (thread, resumable);
    let publisher = Publisher::new(options);
    hub.insert(&publisher);
    publisher
}

fn hub() -> Hub {
    Hub::new(Retention::default(), Memory::new(1 << 30))
}

/// Everything that is there for a watcher: positions, and names with data.
fn shown(watcher: &mut ThreadSubscription) -> Vec<(String, String)> {
    let mut all = vec![];
    while let Some(Watched::Frames(frames)) = watcher.next().now_or_never() {
        for frame in frames {
            let (event, _, data) = frame.event();
            let data = std::str::from_utf8(data).unwrap();
            let is_own = matches!(frame.subject, Subject::Run(..)) && !frame.is_lifecycle;
            let data = if is_own { data } else { "" };
            all.push((frame.position.to_string(), format!("{event} {data}")));
        }
    }
    all
}

fn texts(shown: &[(String, String)]) -> Vec<&str> {
    shown.iter().map(|(_, text)| text.trim()).collect()
}

#[test]
fn runs_that_run_together_are_shown_as_they_go() {
    let (hub, thread) = (hub(), ThreadId::mint());
    let mut watcher = hub.watch(thread, SinceThread::Live, 0);
    let (a, b) = (run(&hub, thread, false), run(&hub, thread, true));
    let other = run(&hub, ThreadId::mint(), true);
    a.emit(custom(1));
    b.emit(custom(2));
    other.emit(custom(3));
    a.emit(custom(4));
    hub.finish(&b);
    hub.finish(&a);
    let all = shown(&mut watcher);
    let expected = [
        "metadata", "custom 1", "metadata", "custom 2", "custom 4", "metadata", "metadata",
    ];
    assert_eq!(texts(&all), expected);
    let positions: Vec<Position> = all.iter().map(|(at, _)| at.parse().unwrap()).collect();
    assert!(positions.is_sorted_by(|a, b| a < b));
}

#[test]
fn what_can_be_resumed_is_there_for_who_comes_later_and_the_rest_is_not() {
    let (hub, thread) = (hub(), ThreadId::mint());
    let early = run(&hub, thread, true);
    early.emit(custom("early"));
    hub.finish(&early);
    let mut first = hub.watch(thread, SinceThread::After(Position::START), 0);
    let passing = run(&hub, thread, false);
    passing.emit(custom("passing"));
    hub.finish(&passing);
    let late = run(&hub, thread, true);
    late.emit(custom("late"));
    let all = shown(&mut first);
    assert_eq!(all.len(), 3 + 3 + 2);
    drop(first);
    let after = SinceThread::After(all[0].0.parse().unwrap());
    let mut back = hub.watch(thread, after, 0);
    let expected = [
        "custom \"early\"",
        "metadata",
        "metadata",
        "custom \"late\"",
    ];
    let missed = shown(&mut back);
    assert_eq!(texts(&missed), expected);
    assert_eq!(missed[0], all[1], "positions stay");
}

#[test]
fn a_stream_encodes_for_watchers_of_its_thread_as_long_as_there_are_some() {
    let (hub, thread) = (hub(), ThreadId::mint());
    let publisher = run(&hub, thread, false);
    assert!(!publisher.wants(crate::engine::Kind::Custom, ""));
    let watcher = hub.watch(thread, SinceThread::Live, 0);
    assert!(publisher.wants(crate::engine::Kind::Custom, ""));
    drop(watcher);
    assert!(!publisher.wants(crate::engine::Kind::Custom, ""));
    assert!(hub.watched(thread).is_none());
}

#[test]
fn a_watcher_that_is_too_far_behind_is_cut_off_and_memory_stays_bounded() {
    let memory = Memory::new(1 << 30);
    let (hub, thread) = (
        Hub::new(Retention::default(), memory.clone()),
        ThreadId::mint(),
    );
    let mut slow = hub.watch(thread, SinceThread::Live, 0);
    let mut quick = hub.watch(thread, SinceThread::Live, 0);
    let publisher = run(&hub, thread, false);
    let text = "x".repeat(100_000);
    let mut read = 0;
    for _ in 0..400 {
        publisher.emit(custom(text.as_str()));
        read += shown(&mut quick).len();
        assert!(memory.used() < 40 << 20, "{}", memory.used());
    }
    assert_eq!(read, 401);
    assert!(matches!(slow.next().now_or_never(), Some(Watched::Lagged)));
    assert!(matches!(slow.next().now_or_never(), Some(Watched::Lagged)));
}

#[test]
fn who_comes_back_for_dropped_entries_learns_of_the_gap() {
    let (hub, thread) = (hub(), ThreadId::mint());
    let mut watcher = hub.watch(thread, SinceThread::Live, 0);
    let publisher = run(&hub, thread, true);
    let text = "x".repeat(100_000);
    let mut all = vec![];
    for _ in 0..100 {
        publisher.emit(custom(text.as_str()));
        all.extend(shown(&mut watcher));
    }
    let after: Position = all[1].0.parse().unwrap();
    let mut back = hub.watch(thread, SinceThread::After(after), 0);
    let Some(Watched::Gap(from, last)) = back.next().now_or_never() else {
        panic!("no gap");
    };
    assert_eq!(from, after);
    let rest = shown(&mut back);
    assert!(rest.len() > 10 && rest.len() < 60, "{}", rest.len());
    let next = rest[0].0.parse::<Position>().unwrap();
    assert_eq!(next.number(), last.number() + 1);
}
