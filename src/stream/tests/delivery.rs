//! Who gets which frames, and when.

use std::time::Duration;

use super::*;
use crate::{engine::Sink, value};

fn values(n: i64) -> Event {
    event("", Body::Values(value!({ "n": n })))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_gets_what_comes_and_then_the_end() {
    let publisher = Publisher::new(options(&[Mode::Custom]));
    let mut reader = publisher.subscribe(Since::Start, &[]);
    let told = tokio::spawn(async move {
        let mut pieces = vec![];
        while let Some(bytes) = reader.next().await {
            pieces.push(parse(&bytes).len());
        }
        pieces
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    publisher.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for tick in 0..3 {
        publisher.emit(custom(tick));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    publisher.close();
    // What was there at once came at once.
    assert_eq!(told.await.unwrap(), [1, 3]);
}

#[tokio::test]
async fn a_reader_who_comes_late_sees_only_what_follows_unless_the_stream_is_kept() {
    for resumable in [false, true] {
        let mut options = options(&[Mode::Custom]);
        options.resumable = resumable;
        let publisher = Publisher::new(options);
        let _first = publisher.subscribe(Since::Start, &[]);
        publisher.emit(custom("early"));
        let mut live = publisher.subscribe(Since::Live, &[]);
        let mut after = publisher.subscribe(Since::After(1), &[]);
        publisher.emit(custom("late"));
        publisher.close();
        let live = parse(&drain(&mut live).await);
        assert_eq!(live.len(), 1);
        assert_eq!(live[0].1, value!("late"));
        assert_eq!(live[0].2, resumable.then_some(3));
        let after = parse(&drain(&mut after).await);
        assert_eq!(after.len(), if resumable { 2 } else { 1 });
        // Nothing is left for one who comes after the end.
        let mut over = publisher.subscribe(Since::Live, &[]);
        assert!(drain(&mut over).await.is_empty());
    }
}

#[tokio::test]
async fn chosen_modes_leave_out_the_rest_but_not_the_failure() {
    let mut options = options(&[Mode::Custom, Mode::Values]);
    options.resumable = true;
    let publisher = Publisher::new(options);
    for n in 0..3 {
        publisher.emit(custom(n));
        publisher.emit(values(n));
    }
    publisher.error("ValueError", "bad");
    publisher.close();
    let mut reader = publisher.subscribe(Since::Start, &[Mode::Values]);
    let seen = parse(&drain(&mut reader).await);
    assert_eq!(names(&seen), ["values", "values", "values", "error"]);
    let ids: Vec<_> = seen.iter().filter_map(|(_, _, id)| *id).collect();
    assert_eq!(ids, [3, 5, 7, 8]);
}

#[tokio::test]
async fn a_reader_who_comes_back_gets_exactly_the_rest_at_every_point() {
    let mut options = options(&[Mode::Custom]);
    options.resumable = true;
    let publisher = Publisher::new(options);
    let mut live = publisher.subscribe(Since::Start, &[]);
    let mut all = vec![];
    for n in 0..40 {
        publisher.emit(custom(n));
        if n % 7 == 0 {
            all.extend(now(&mut live));
        }
    }
    publisher.close();
    all.extend(parse(&drain(&mut live).await));
    for cut in 0..=41 {
        let mut again = publisher.subscribe(Since::After(cut), &[]);
        let rest = parse(&drain(&mut again).await);
        assert_eq!(rest, all[usize::try_from(cut).unwrap()..]);
    }
}

/// How many frames are there now; large ones are counted, not read.
fn count(reader: &mut Subscription) -> usize {
    let mut frames = 0;
    while let Some(Some(bytes)) = futures::FutureExt::now_or_never(reader.next()) {
        frames += bytes.windows(4).filter(|end| end == b"\r\n\r\n").count();
    }
    frames
}

#[tokio::test]
async fn a_reader_far_behind_is_cut_off_and_the_others_are_not() {
    let options = options(&[Mode::Custom]);
    let lag = options.limits.lag;
    let publisher = Publisher::new(options);
    let mut slow = publisher.subscribe(Since::Start, &[]);
    let mut quick = publisher.subscribe(Since::Start, &[]);
    let text = Value::from("x".repeat(lag / 10));
    let mut seen = 0;
    for _ in 0..16 {
        publisher.emit(custom(text.clone()));
        seen += count(&mut quick);
    }
    // What the slow one has not read is not kept for it.
    assert!(publisher.size() < lag / 2, "{}", publisher.size());
    let told = now(&mut slow);
    assert_eq!(names(&told), ["error"]);
    assert_eq!(told[0].1.get("error").unwrap(), "SlowReader");
    assert!(slow.next().await.is_none());
    assert_eq!(seen, 17);
}

#[tokio::test]
async fn frames_that_are_gone_are_announced() {
    let mut options = options(&[Mode::Custom]);
    options.resumable = true;
    let kept = options.limits.retained;
    let publisher = Publisher::new(options);
    let text = Value::from("x".repeat(kept / 8));
    for _ in 0..10 {
        publisher.emit(custom(text.clone()));
    }
    publisher.emit(custom("end"));
    publisher.close();
    assert!(publisher.size() <= kept);
    let mut reader = publisher.subscribe(Since::After(3), &[]);
    let gap = parse(&reader.next().await.unwrap());
    assert_eq!(names(&gap), ["gap"]);
    assert_eq!(gap[0].1, value!({"first": 4, "last": 4}));
    let mut last = vec![];
    let mut pieces = 0;
    while let Some(bytes) = reader.next().await {
        (last, pieces) = (bytes.to_vec(), pieces + 1);
    }
    assert_eq!(pieces, 8);
    assert_eq!(parse(&last)[0].2, Some(12));
}

#[test]
fn headers_name_the_start_a_number_or_nothing() {
    for start in ["-", "-1", "0"] {
        assert_eq!(Since::last_event_id(Some(start)), Since::Start);
    }
    assert_eq!(Since::last_event_id(Some("12")), Since::After(12));
    assert_eq!(Since::last_event_id(Some("bogus")), Since::Live);
    assert_eq!(Since::last_event_id(None), Since::Live);
}
