//! Shares of clients of the memory for unread events.

use super::{memory::Memory, *};
use crate::engine::Sink as _;

const MIB: usize = 1 << 20;

struct Rig {
    hub: Hub,
    memory: Arc<Memory>,
}

impl Rig {
    fn new(limit: usize) -> Self {
        let memory = Memory::new(limit);
        let hub = Hub::new(Retention::default(), memory.clone());
        Self { hub, memory }
    }

    fn stream(&self) -> Arc<Publisher> {
        let options = Options {
            limits: Limits {
                lag: 64 * MIB,
                retained: 64 * MIB,
            },
            ..options(&[Mode::Custom])
        };
        let publisher = Publisher::new(options);
        assert!(self.hub.insert(&publisher));
        publisher
    }
}

fn reader(publisher: &Arc<Publisher>, payer: &str) -> Subscription {
    let reader = publisher.subscribe(Since::Start, &[]);
    reader.paid_by(&payer.into());
    reader
}

fn emit(publisher: &Publisher, bytes: usize) {
    let text = Value::from("x".repeat(bytes / 16));
    for _ in 0..16 {
        publisher.emit(custom(text.clone()));
    }
}

async fn is_cut(reader: &mut Subscription) -> bool {
    let first = reader.next().await.unwrap();
    parse(&first)[0].0 == "error"
}

#[tokio::test]
async fn where_there_is_too_much_the_client_with_the_most_loses_its_largest_streams() {
    let rig = Rig::new(16 * MIB);
    let of_ann: Vec<_> = (0..6).map(|_| rig.stream()).collect();
    let mut hers: Vec<_> = of_ann.iter().map(|one| reader(one, "ann")).collect();
    let of_bob = rig.stream();
    let mut his = reader(&of_bob, "bob");
    // More than any stream of hers, and less than all of them.
    emit(&of_bob, 5 * MIB);
    for stream in &of_ann[1..] {
        emit(stream, 2 * MIB);
    }
    assert!(rig.memory.used() < 16 * MIB);
    emit(&of_ann[0], 3 * MIB);
    assert!(!is_cut(&mut his).await);
    let mut left = 0;
    for reader in &mut hers {
        left += usize::from(!is_cut(reader).await);
    }
    assert!(
        (3..6).contains(&left),
        "as many as room was needed for: {left}"
    );
}

#[tokio::test]
async fn a_client_with_its_share_loses_nothing_to_one_that_had_more() {
    let rig = Rig::new(16 * MIB);
    let (hers, his) = (rig.stream(), rig.stream());
    let (mut of_ann, mut of_bob) = (reader(&hers, "ann"), reader(&his, "bob"));
    emit(&his, 7 * MIB);
    // What is left then is still more than three quarters.
    emit(&hers, 10 * MIB);
    assert!(is_cut(&mut of_ann).await);
    assert!(!is_cut(&mut of_bob).await);
}

#[tokio::test]
async fn a_client_may_have_more_than_its_share_as_long_as_nobody_needs_it() {
    let rig = Rig::new(16 * MIB);
    let stream = rig.stream();
    let mut reader = reader(&stream, "ann");
    emit(&stream, 14 * MIB);
    assert!(!is_cut(&mut reader).await);
}

#[tokio::test]
async fn of_one_stream_only_the_readers_of_that_client_are_cut_off() {
    let rig = Rig::new(16 * MIB);
    let stream = rig.stream();
    let mut of_bob = reader(&stream, "bob");
    let mut of_ann = reader(&stream, "ann");
    for _ in 0..10 {
        emit(&stream, MIB);
        while let Some(Some(_)) = futures::FutureExt::now_or_never(of_bob.next()) {}
    }
    emit(&stream, 7 * MIB);
    assert!(is_cut(&mut of_ann).await);
    assert!(!is_cut(&mut of_bob).await);
    assert!(rig.memory.used() < 9 * MIB, "what she had not read is gone");
}

#[tokio::test]
async fn watchers_of_a_thread_have_shares_too() {
    let rig = Rig::new(16 * MIB);
    let stream = rig.stream();
    let watch = |payer: &str| {
        let watcher = rig.hub.watch(stream.thread(), SinceThread::Live, 0);
        watcher.paid_by(&payer.into())
    };
    let (mut of_ann, mut of_bob) = (watch("ann"), watch("bob"));
    let other = rig.stream();
    let mut of_carol = reader(&other, "carol");
    emit(&other, 6 * MIB);
    for _ in 0..12 {
        emit(&stream, MIB);
        while let Some(next) = futures::FutureExt::now_or_never(of_bob.next()) {
            assert!(matches!(next, Watched::Frames(_)));
        }
    }
    assert!(matches!(of_ann.next().await, Watched::Lagged));
    assert!(!is_cut(&mut of_carol).await);
}

#[test]
fn what_a_client_does_not_take_is_at_most_its_share() {
    let memory = Memory::new(4 * MIB);
    let [ann, bob] = ["ann", "bob"].map(Arc::<str>::from);
    let first = memory.in_flight(&ann, 3 * MIB / 2).unwrap();
    assert!(memory.in_flight(&ann, MIB).is_none());
    let second = memory.in_flight(&ann, MIB / 2).unwrap();
    assert!(memory.in_flight(&ann, 20 << 10).is_none());
    let beat = memory.in_flight(&ann, 15).unwrap();
    // A frame that is larger goes out by itself, and then the two have a part each.
    let third = memory.in_flight(&bob, MIB / 2).unwrap();
    let fourth = memory.in_flight(&bob, MIB / 2).unwrap();
    assert!(memory.in_flight(&bob, MIB / 2).is_none());
    assert_eq!(memory.used(), 3 * MIB + 15);
    drop((first, second, third, fourth, beat));
    assert_eq!(memory.used(), 0);
    assert!(memory.in_flight(&ann, 3 * MIB).is_some());
}
