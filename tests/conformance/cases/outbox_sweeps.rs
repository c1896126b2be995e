//! Deliveries that were given up go some time later, a bounded number at a time.

use std::time::Duration;

use backstitch::webhooks::outbox::FailedTry;

use super::{backend::*, outbox::key};

pub async fn dead_deliveries_are_swept_in_batches_and_others_stay(b: &Backend) {
    let (mut dead, waiting) = (vec![], b.owed("http://hooks.example").await);
    for _ in 0..5 {
        let run = b.owed("http://hooks.example").await;
        assert_eq!(b.take(&run, Duration::ZERO).await, Some(1));
        let failed = FailedTry {
            key: key(&run),
            attempt: 1,
            error: "refused".into(),
            pause: None,
        };
        b.outbox.delivery_failed(failed).await.unwrap();
        dead.push(run);
    }
    let left = async || {
        let mut left = 0;
        for run in &dead {
            left += b
                .probe
                .rows(run.tree)
                .await
                .get("outbox")
                .map_or(0, |rows| *rows);
        }
        left
    };
    // The clock of a row is as fine as a microsecond.
    tokio::time::sleep(Duration::from_millis(1)).await;
    for (swept, left_then) in [(2, 3), (2, 1), (1, 0), (0, 0)] {
        let sweep = b.outbox.sweep_deliveries(Duration::ZERO, 2);
        assert_eq!(sweep.await.unwrap(), swept);
        assert_eq!(left().await, left_then);
    }
    assert_eq!(b.probe.rows(waiting.tree).await.get("outbox"), Some(&1));
}
