//! When threads with runs have changed, as lists order them by it.

use backstitch::{
    id::ThreadId,
    runs::Undo,
    tree::search::{SortBy, ThreadPage},
};

use super::backend::*;

/// All threads, the one that changed last before the others.
async fn recent(b: &Backend) -> Vec<ThreadId> {
    let page = ThreadPage {
        sort_by: SortBy::UpdatedAt,
        limit: 100,
        ..ThreadPage::default()
    };
    let found = b.trees.search(page).await.unwrap();
    let times: Vec<_> = found
        .iter()
        .map(|listed| listed.thread.updated_at)
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    found.iter().map(|listed| listed.thread.id).collect()
}

pub async fn a_run_moves_the_time_of_its_thread_when_it_starts_and_however_it_ends(b: &Backend) {
    for end in ["finish", "cancel", "take", "roll back"] {
        let thread = b.thread().await;
        let other = b.thread().await;
        assert_eq!(recent(b).await[..2], [other, thread]);
        let (run, slot) = b.start(new_run(thread)).await;
        assert_eq!(recent(b).await[..2], [thread, other], "it starts");
        let third = b.thread().await;
        assert_eq!(recent(b).await[..2], [third, thread], "it goes on");
        match end {
            "finish" => b.finish(run.id, slot).await,
            "cancel" => assert_eq!(b.cancel(thread, None).await, [run.id]),
            "take" => drop(b.trees.take_slot(thread).await.unwrap()),
            _ => {
                let undo = Undo {
                    thread,
                    run: run.id,
                    ended: false,
                    error: None,
                };
                let mut tx = b.runs.begin(slot.tree).await.unwrap();
                assert!(tx.remove_run(undo).await.unwrap().is_some());
                tx.commit().await.unwrap();
            }
        }
        assert_eq!(recent(b).await[..2], [thread, third], "{end}");
    }
}
