//! Due times of crons that are served no more.

use backstitch::{
    crons::CronRow,
    runs::Fired,
    value::{Map, Value},
};

use super::{
    backend::*,
    crons::{assistant, create, fire, row},
};

pub async fn a_due_time_of_a_changed_or_disabled_cron_is_lost(b: &Backend) {
    let thread = b.thread().await;
    let old = create(b, row(assistant(b).await, Some(thread))).await;
    let new = CronRow {
        payload: Map::from([("input", Value::Int(2))]),
        ..old.clone()
    };
    let changed = b
        .crons
        .replace_cron(old.clone(), new)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(fire(b, &old, new_run(thread)).await, Fired::Lost));
    let off = CronRow {
        enabled: false,
        ..changed.clone()
    };
    let off = b.crons.replace_cron(changed, off).await.unwrap().unwrap();
    assert!(matches!(fire(b, &off, new_run(thread)).await, Fired::Lost));
    assert!(b.crons.delete_cron(off.id, None).await.unwrap());
    assert!(matches!(fire(b, &off, new_run(thread)).await, Fired::Lost));
    assert!(b.runs.runs(thread, None, 10, 0).await.unwrap().is_empty());
}
