use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn idle() {}

fn finished(chat: &Chat) -> bool {
    chat.topic.is_empty()
}

fn main() {
    let _ = Graph::<Chat>::new()
        .node("idle", idle)
        .route("idle", finished, ["idle", END]);
}
