use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node]
async fn node(_: Chat, _: Ctx, _: Dep<u8>, _: Dep<u16>, _: Dep<u32>) {}

fn main() {}
