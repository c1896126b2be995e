//! What reads of one principal take of the threads: its share, and what it reads in a transaction comes beside it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{super::Store, new_thread};
use crate::{
    checkpoint::Error,
    contention::shares::on_behalf_of,
    storage::sqlite::connection::readers::{COUNT, Handle},
    tree::{Read as _, Store as _},
};

/// Half of the threads, as long as no setting says otherwise.
const SHARE: usize = COUNT / 2;

/// Far longer than a read takes that does not wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// In whose name something is read.
async fn of<T>(name: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, on_behalf_of(Some(name.into()), work))
        .await
        .expect("it waits for others")
}

/// Reads that go on until this is dropped.
#[derive(Clone)]
struct Endless {
    begun: Arc<AtomicUsize>,
    ends: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Endless {
    fn new() -> (Self, mpsc::Sender<()>) {
        let (end, ends) = mpsc::channel();
        let endless = Self {
            begun: Arc::default(),
            ends: Arc::new(Mutex::new(ends)),
        };
        (endless, end)
    }

    /// Begins one in ann's name.
    fn begin(&self, rows: Handle) -> tokio::task::JoinHandle<Result<(), Error>> {
        let endless = self.clone();
        let read = async move {
            rows.run(move |_| {
                endless.begun.fetch_add(1, Ordering::SeqCst);
                let _ = endless.ends.lock().recv();
                Ok(())
            })
            .await
        };
        tokio::spawn(on_behalf_of(Some("ann".into()), read))
    }

    /// Waits until so many have begun.
    async fn have_begun(&self, count: usize) {
        while self.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

/// A store in which ann reads as much at a time as she may until the sender goes, and waits shortly for more.
async fn store_that_ann_reads() -> (Store, mpsc::Sender<()>) {
    let store = Store::private().unwrap();
    let store = store.with_request_wait(Duration::from_millis(20));
    let (endless, end) = Endless::new();
    for _ in 0..SHARE {
        drop(endless.begin(store.readers.handle()));
    }
    endless.have_begun(SHARE).await;
    (store, end)
}

#[tokio::test]
async fn reads_of_rows_leave_threads_to_other_principals() {
    let store = Store::private().unwrap();
    let (endless, end) = Endless::new();
    let of_ann: Vec<_> = (0..3 * COUNT)
        .map(|_| endless.begin(store.readers.handle()))
        .collect();
    endless.have_begun(SHARE).await;
    let id = new_thread().id;
    for _ in 0..COUNT {
        let read = of("bob", async { store.rows().thread_row(id).await }).await;
        assert!(read.unwrap().is_none());
    }
    assert_eq!(endless.begun.load(Ordering::SeqCst), SHARE);
    drop(end);
    for read in join_all(of_ann).await {
        read.unwrap().unwrap();
    }
}

#[tokio::test]
async fn each_read_of_rows_waits_for_the_share_of_its_principal() {
    let (store, end) = store_that_ann_reads().await;
    let id = new_thread().id;
    let read = async || store.rows().thread_row(id).await;
    let refused = of("ann", read()).await.unwrap_err();
    assert!(matches!(refused, Error::ShareUsed(_)), "{refused}");
    of("bob", read()).await.unwrap();
    drop(end);
    // One after the other: each gives its share back, and the last of those that went on may end now.
    let all = async {
        let mut rows = store.rows();
        for _ in 0..2 * COUNT {
            while let Err(Error::ShareUsed(_)) = rows.thread_row(id).await {}
            rows.thread_row(id).await.unwrap();
        }
    };
    of("ann", all).await;
}

#[tokio::test]
async fn what_is_read_while_a_transaction_is_open_waits_for_no_share() {
    let (store, _end) = store_that_ann_reads().await;
    let id = new_thread().id;
    let refused = |read: Result<_, Error>| matches!(read, Err(Error::ShareUsed(_)));
    let request = async {
        assert!(refused(store.thread(id).await.map(drop)));
        for commits in [true, false] {
            let mut transaction = store.transaction().await.unwrap();
            for _ in 0..COUNT {
                assert!(transaction.thread_row(id).await.unwrap().is_none());
                assert!(store.thread(id).await.unwrap().is_none());
                assert!(store.rows().thread_row(id).await.unwrap().is_none());
            }
            // That is for this request, and not for others of the same principal.
            let other = of("ann", store.thread(id)).await;
            assert!(refused(other.map(drop)));
            if commits {
                crate::tree::Tx::commit(Box::new(transaction))
                    .await
                    .unwrap();
            } else {
                drop(transaction);
            }
            assert!(refused(store.thread(id).await.map(drop)));
        }
    };
    of("ann", request).await;
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_any_more_counts_for_its_principal_until_it_ends() {
    let store = Store::private().unwrap();
    let store = store.with_request_wait(Duration::from_millis(20));
    let (endless, end) = Endless::new();
    for count in 1..=SHARE {
        let read = endless.begin(store.readers.handle());
        endless.have_begun(count).await;
        read.abort();
        assert!(read.await.unwrap_err().is_cancelled());
    }
    let id = new_thread().id;
    let refused = of("ann", store.thread(id)).await.unwrap_err();
    assert!(matches!(refused, Error::ShareUsed(_)), "{refused}");
    drop(end);
    while let Err(Error::ShareUsed(_)) = of("ann", store.thread(id)).await {}
}
