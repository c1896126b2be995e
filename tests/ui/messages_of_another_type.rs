use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<String>,
}

fn main() {}
