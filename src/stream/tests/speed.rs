//! How fast events pass, by hand: `cargo test --release --lib stream -- --ignored --nocapture`.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{engine::Sink, value};

const EVENTS: u32 = 400_000;

/// Time on the processor so far, of all threads.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn report(name: &str, wall: Duration, cpu: Duration) {
    let rate = f64::from(EVENTS) / wall.as_secs_f64();
    let each = cpu.as_secs_f64() * 1e6 / f64::from(EVENTS);
    println!("{name}: {rate:.0} events/s, {each:.2} us of CPU each");
}

async fn pass(name: &str, modes: &[Mode], streams: u32, make: fn(u32) -> Event) {
    let (began, used) = (Instant::now(), cpu());
    let mut tasks = vec![];
    let each = EVENTS / streams;
    for _ in 0..streams {
        let publisher = Publisher::new(options(modes));
        let mut reader = publisher.subscribe(Since::Start, &[]);
        tasks.push(tokio::spawn(async move {
            let mut bytes = 0;
            while let Some(piece) = reader.next().await {
                bytes += piece.len();
            }
            bytes
        }));
        tasks.push(tokio::spawn(async move {
            for number in 0..each {
                publisher.emit(make(number));
                if number % 16 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            publisher.close();
            1
        }));
    }
    for task in tasks {
        assert!(task.await.unwrap() > 0);
    }
    report(name, began.elapsed(), cpu() - used);
}

/// Encoding alone, one thread, the event already built.
fn encode(name: &str, modes: &[Mode], event: Event) {
    let publisher = Publisher::new(options(modes));
    let mut reader = publisher.subscribe(Since::Live, &[]);
    let (began, used) = (Instant::now(), cpu());
    for number in 0..EVENTS {
        publisher.emit(event.clone());
        if number % 16 == 0 {
            let _ = futures::FutureExt::now_or_never(reader.next());
        }
    }
    report(name, began.elapsed(), cpu() - used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; says nothing on a busy machine"]
async fn events_per_second() {
    let token = |n: u32| custom(value!({"token": "hello ", "n": n}));
    let chunk = |_: u32| {
        thread_local! {
            static TASK: Arc<TaskInfo> = task("model", "model:7");
        }
        let body = Body::Message {
            message: value!({"type": "AIMessageChunk", "id": "lc_run--1", "content": "hello "}),
            whole: false,
            task: TASK.with(Arc::clone),
        };
        event("", body)
    };
    encode("custom, encoding", &[Mode::Custom], token(1));
    encode("messages-tuple, encoding", &[Mode::MessagesTuple], chunk(1));
    pass("custom", &[Mode::Custom], 16, token).await;
    pass("messages-tuple", &[Mode::MessagesTuple], 16, chunk).await;
}
