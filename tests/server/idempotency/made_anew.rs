//! A request whose thread is gone when it is repeated, and made anew before that is told.

use super::*;

on_both_storages!(
    nothing_is_told_of_a_thread_that_comes_while_the_answer_of_another_one_is_looked_up
);

fn nothing_is_told_of_a_thread_that_comes_while_the_answer_of_another_one_is_looked_up(
    place: &Place,
) {
    let gate = tempfile::tempdir().unwrap();
    let closed = gate.path().join("closed");
    let point = format!("runs::repeat_gone=while({})", closed.display());
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", point));
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/runs/wait");
    ok(post(&client, &path, "k", &slow(1)), 200);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    std::fs::write(&closed, "").unwrap();
    thread::scope(|scope| {
        let again = scope.spawn(|| post(&client, &path, "k", &slow(1)));
        until("the thread was looked up", || {
            again.is_finished() || server.output().contains("a fail point was reached")
        });
        assert!(!again.is_finished(), "it was not held up");
        let made = client.post("/threads", &json!({"thread_id": thread}));
        std::fs::remove_file(&closed).unwrap();
        assert_eq!(made.status, 200);
        assert_eq!(again.join().unwrap().status, 404);
    });
    assert_eq!(runs(&client, &thread), Vec::<Value>::new());
}
