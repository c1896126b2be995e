#![deny(unused_must_use)]
use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn node(ctx: Ctx) -> Update<Chat> {
    ctx.interrupt::<bool>("Go on?");
    Chat::update().topic("bees")
}

fn main() {
    let _ = Graph::<Chat>::new().node("node", node);
}
