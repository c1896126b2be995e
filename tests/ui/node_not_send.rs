use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node]
async fn node() {
    let shared = std::rc::Rc::new(1);
    std::future::ready(()).await;
    drop(shared);
}

fn main() {}
