//! A whole server: an agent with a tool, approval and a structured response.
use backstitch::{Server, prelude::*};

/// Books a table.
#[tool]
async fn book(restaurant: String, guests: u32) -> String {
    format!("A table for {guests} at {restaurant} is booked.")
}

/// What was booked.
#[data]
struct Booking {
    restaurant: String,
    guests: u32,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let table = json!({"restaurant": "Engen", "guests": 4});
    let replies = ["book", "Booking"].map(|name| Message::ai("").calling(name, table.clone()));
    let agent = agent(ScriptedModel::replying(replies)).tools([book()]);
    let agent = agent.prompt("You book tables.").approve(["book"]);
    let graph = agent.respond_with::<Booking>().build();
    Server::new().graph("tables", graph).run().await
}
