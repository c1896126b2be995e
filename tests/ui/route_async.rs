use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn idle() {}

async fn next(chat: Chat) -> String {
    chat.topic
}

fn main() {
    let _ = Graph::<Chat>::new()
        .node("idle", idle)
        .route("idle", next, ["idle", END]);
}
