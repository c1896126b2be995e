use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    #[state(append, messages)]
    messages: Vec<Message>,
}

fn main() {}
