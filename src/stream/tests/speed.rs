//! How fast events pass, by hand: `cargo test --release --lib stream -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;
use crate::{engine::Sink, value};

const EVENTS: u32 = 400_000;

async fn pass(name: &str, modes: &[Mode], streams: u32, make: fn(u32) -> Event) {
    let began = Instant::now();
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
            0
        }));
    }
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await.unwrap();
    }
    let took = began.elapsed();
    let rate = f64::from(EVENTS) / took.as_secs_f64();
    let share = Duration::from_secs(1).as_micros() as f64 / rate;
    println!("{name}: {rate:.0} events/s, {share:.2} us each, {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; says nothing on a busy machine"]
async fn events_per_second() {
    pass("custom", &[Mode::Custom], 16, |n| custom(value!({"token": "hello ", "n": n}))).await;
    pass("messages-tuple", &[Mode::MessagesTuple], 16, |_| {
        thread_local! {
            static TASK: Arc<TaskInfo> = task("model", "model:7");
        }
        let body = Body::Message {
            message: value!({"type": "AIMessageChunk", "id": "lc_run--1", "content": "hello "}),
            whole: false,
            task: TASK.with(Arc::clone),
        };
        event("", body)
    })
    .await;
}
