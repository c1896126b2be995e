//! Which finished streams a process retains.

use std::time::Duration;

use super::*;
use crate::engine::Sink;

fn kept() -> Arc<Publisher> {
    let mut options = options(&[Mode::Custom]);
    options.resumable = true;
    let publisher = Publisher::new(options);
    publisher.emit(custom("x".repeat(1000).as_str()));
    publisher
}

#[tokio::test(start_paused = true)]
async fn finished_streams_are_kept_for_a_while_if_they_can_be_resumed() {
    let hub = Hub::new(Retention::default(), Memory::new(1 << 30));
    let (passing, lasting) = (Publisher::new(options(&[])), kept());
    for publisher in [&passing, &lasting] {
        assert!(hub.insert(publisher));
        assert!(hub.get(publisher.run()).is_some());
        hub.finish(publisher);
        assert!(publisher.is_closed());
    }
    assert!(hub.get(passing.run()).is_none());
    tokio::time::advance(Duration::from_secs(599)).await;
    assert!(hub.get(lasting.run()).is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(hub.get(lasting.run()).is_none());
    hub.sweep();
    assert_eq!(Arc::strong_count(&lasting), 1);
}

#[tokio::test]
async fn the_oldest_finished_streams_make_room() {
    let hub = Hub::new(
        Retention {
            bytes: 3000,
            ..Retention::default()
        },
        Memory::new(1 << 30),
    );
    let all = [kept(), kept(), kept(), kept()];
    for publisher in &all {
        assert!(hub.insert(publisher));
    }
    for publisher in &all[..3] {
        hub.finish(publisher);
    }
    let here: Vec<bool> = all.iter().map(|one| hub.get(one.run()).is_some()).collect();
    // What still runs is never taken away.
    assert_eq!(here, [false, true, true, true]);
    hub.remove(&all[1]);
    hub.finish(&all[3]);
    assert!(hub.get(all[2].run()).is_some() && hub.get(all[3].run()).is_some());
}

#[tokio::test]
async fn another_attempt_takes_the_place_of_a_run() {
    let hub = Hub::new(Retention::default(), Memory::new(1 << 30));
    let old = kept();
    hub.insert(&old);
    let mut again = options(&[Mode::Custom]);
    (again.run, again.resumable, again.after) = (old.run(), true, 2);
    let new = Publisher::new(again);
    assert!(!hub.insert(&new), "it is no other run");
    hub.remove(&new);
    assert!(hub.get(old.run()).is_some());
    hub.replace(new.clone());
    hub.finish(&old);
    let found = hub.get(old.run()).unwrap();
    assert!(Arc::ptr_eq(&found, &new) && !found.is_closed());
    // The numbers of its frames go on after those of the attempt before.
    new.start();
    new.close();
    let first = parse(&drain(&mut new.subscribe(Since::Start, &[])).await);
    assert_eq!(first[0].2, Some(3));
}

#[tokio::test]
async fn a_stream_that_has_not_begun_is_removed_unless_somebody_shares_it() {
    let hub = Hub::new(Retention::default(), Memory::new(1 << 30));
    let publisher = Publisher::new(options(&[]));
    assert!(hub.insert(&publisher));
    let reader = hub.get(publisher.run());
    assert!(!hub.remove_unread(&publisher, 0), "it is read");
    drop(reader);
    let handle = publisher.clone();
    assert!(!hub.remove_unread(&publisher, 0));
    assert!(hub.remove_unread(&publisher, 1));
    assert!(hub.get(publisher.run()).is_none());
    assert!(!hub.remove_unread(&publisher, 1), "it is not here any more");
    drop(handle);
    assert!(hub.insert(&publisher));
    publisher.start();
    assert!(!hub.remove_unread(&publisher, 0), "it has begun");
}
