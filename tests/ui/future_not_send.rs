use std::rc::Rc;

use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn node() {
    let shared = Rc::new(1);
    std::future::ready(()).await;
    drop(shared);
}

fn main() {
    let _ = Graph::<Chat>::new().node("node", node);
}
