//! Runs that have not ended, read in pages and looked up by their ids.

use backstitch::{
    runs::{OpenPage, Status},
    tree::members::Level,
};

use super::backend::*;

pub async fn open_runs_are_read_in_pages_of_those_that_one_may_write_to(b: &Backend) {
    let threads = [b.thread().await, b.thread().await, b.thread().await];
    let mut runs = vec![];
    for thread in threads {
        runs.push(b.start(new_run(thread)).await.0.id);
        runs.push(b.queue(new_run(thread)).await.id);
    }
    for (thread, level) in [(threads[0], Level::Reader), (threads[1], Level::Writer)] {
        let tree = b.trees.thread(thread).await.unwrap().unwrap().tree;
        let mut tx = b.trees.begin(tree).await.unwrap();
        tx.put_member(tree, "bob".into(), Some(level))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    let read = async |status: Option<Status>, writer: Option<&str>, limit: usize| {
        let mut found = vec![];
        let mut page = OpenPage {
            status,
            writer: writer.map(Into::into),
            after: None,
            limit,
        };
        loop {
            let open = b.runs.open(page.clone()).await.unwrap();
            assert!(open.len() <= limit);
            let Some(last) = open.last() else {
                return found;
            };
            page.after = Some(last.seq);
            found.extend(open.iter().map(|open| open.run));
        }
    };
    assert_eq!(read(None, None, 4).await, runs);
    assert_eq!(read(None, Some("bob"), 1).await, runs[2..4]);
    assert_eq!(read(Some(Status::Pending), Some("bob"), 9).await, [runs[3]]);
    assert!(read(None, Some("cid"), 9).await.is_empty());

    let thread = threads[1];
    assert_eq!(b.cancel(thread, Some(runs[3])).await, [runs[3]]);
    let named = vec![runs[3], runs[2], runs[2], runs[0], unknown()];
    let mut found = b.runs.is_open(thread, named).await.unwrap();
    found.sort();
    let mut expected = vec![(runs[2], true), (runs[3], false)];
    expected.sort();
    assert_eq!(found, expected);
}
