use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node]
fn node(chat: Chat) -> Update<Chat> {
    Chat::update().topic(chat.topic)
}

fn main() {}
