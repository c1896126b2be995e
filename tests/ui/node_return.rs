use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node(Chat)]
async fn node(chat: Chat) -> String {
    chat.topic
}

fn main() {}
