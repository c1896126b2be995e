//! A graph that interrupts and its test, as an author writes them.
use backstitch::{Local, prelude::*};

#[derive(State)]
struct Letter {
    text: String,
    posted: Option<bool>,
}

async fn post(ctx: Ctx) -> Update<Letter> {
    Letter::update().posted(ctx.interrupt::<bool>("Post it?").await)
}

#[tokio::test]
async fn a_letter_is_posted_once_somebody_agrees() -> Result<()> {
    let graph = Graph::<Letter>::new().node("post", post);
    let thread = Local::memory()?.thread(&graph.edge(START, "post").build()?);
    let asked = thread.invoke(Letter::update().text("it")).await?;
    assert_eq!(asked.interrupts()[0].value, "Post it?");
    assert_eq!(thread.resume(true).await?["posted"], true);
    Ok(())
}
