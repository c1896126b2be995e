//! Tests of attempts, of models that take another's part, and of limits of calls.

use futures::TryStreamExt;

use super::*;
use crate::{
    llm::{Reply, ScriptedModel, complete},
    message::AiChunk,
};

fn refused(status: u16) -> Reply {
    Reply::failing(Error::Refused {
        at: "test".to_owned(),
        status,
        reason: "busy".to_owned(),
        retry_after: None,
    })
}

fn patient(status: u16, seconds: u64) -> Reply {
    Reply::failing(Error::Refused {
        at: "test".to_owned(),
        status,
        reason: "busy".to_owned(),
        retry_after: Some(Duration::from_secs(seconds)),
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_is_left_alone_for_as_long_as_it_wants() {
    let model = ScriptedModel::in_turn([patient(429, 7), Message::ai("hello").into()]);
    let begin = Instant::now();
    let reply = text(&Fallback::new(model)).await.expect("the second");
    assert_eq!(reply, "hello");
    assert_eq!(begin.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_limit() {
    let model = || ScriptedModel::in_turn([patient(429, 61), Message::ai("late").into()]);
    let begin = Instant::now();
    let error = text(&Fallback::new(model()))
        .await
        .expect_err("a minute at most");
    assert!(format!("{error:#}").contains("429"), "{error:#}");
    let other = ScriptedModel::in_turn([Message::ai("other").into()]);
    let reply = text(&Fallback::new(model()).or(other))
        .await
        .expect("the other");
    assert_eq!(reply, "other");
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let patient = Fallback::new(model()).within(Duration::from_secs(100));
    assert_eq!(text(&patient).await.expect("the second"), "late");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_repeats_is_not_repeated_by_the_one_around_it() {
    let model = ScriptedModel::in_turn([refused(503), refused(503), Message::ai("x").into()]);
    let inner = Fallback::new(model).attempts(2);
    let other = ScriptedModel::in_turn([Message::ai("other").into()]);
    let both = Fallback::new(inner).or(other);
    assert_eq!(text(&both).await.expect("the other"), "other");
}

async fn text(model: &impl ChatModel) -> anyhow::Result<String> {
    Ok(complete(model, &[], &[], &CallOptions::new()).await?.text())
}

#[tokio::test(start_paused = true)]
async fn failures_that_may_pass_are_tried_until_the_attempts_are_used() {
    let model = ScriptedModel::in_turn([refused(429), refused(503), Message::ai("hello").into()]);
    let begin = Instant::now();
    assert_eq!(
        text(&Fallback::new(model)).await.expect("the third"),
        "hello"
    );
    assert_eq!(
        begin.elapsed(),
        Duration::from_millis(1500),
        "0.5 s and 1 s"
    );
    let model = ScriptedModel::in_turn([refused(429), refused(503), Message::ai("late").into()]);
    let error = text(&Fallback::new(model).attempts(2))
        .await
        .expect_err("two only");
    assert!(format!("{error:#}").contains("503"), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_is_not_tried_twice_but_another_model_takes_over() {
    let model = || ScriptedModel::in_turn([refused(401), Message::ai("never").into()]);
    let error = text(&Fallback::new(model())).await.expect_err("refused");
    assert!(error.to_string().contains("401"), "{error}");
    let other = ScriptedModel::in_turn([Message::ai("other").into()]);
    assert_eq!(
        text(&Fallback::new(model()).or(other))
            .await
            .expect("the other"),
        "other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_begun_is_not_begun_anew() {
    let cut = || Reply::cut(Message::ai("one two three"), 2);
    let model = Fallback::new(ScriptedModel::in_turn([cut(), Message::ai("x").into()]));
    let mut pieces = model.stream(&[], &[]);
    let mut text = String::new();
    let error = loop {
        match pieces.try_next().await {
            Ok(Some(AiChunk { content, .. })) => {
                text.push_str(content.as_str().unwrap_or_default())
            }
            Ok(None) => panic!("the reply was cut"),
            Err(error) => break error,
        }
    };
    assert_eq!(text, "one two ");
    assert!(is_transient(&error), "the node may retry: {error}");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_a_rate_wait_for_their_turn() {
    let scripted = ScriptedModel::in_turn([Message::ai("x").into()]).repeating();
    let model = RateLimited::new(scripted, 2, Duration::from_secs(60));
    let begin = Instant::now();
    for _ in 0..5 {
        text(&model).await.expect("scripted");
    }
    assert_eq!(begin.elapsed(), Duration::from_secs(120));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_lets_nobody_through_early_and_holds_nobody_up() {
    let scripted = ScriptedModel::in_turn([Message::ai("x").into()]).repeating();
    let model = RateLimited::new(scripted, 1, Duration::from_secs(60));
    let begin = Instant::now();
    text(&model).await.expect("scripted");
    let given_up = tokio::time::timeout(Duration::from_secs(1), text(&model)).await;
    assert!(given_up.is_err());
    // One that waits and is not polled meanwhile.
    let mut idle = std::pin::pin!(text(&model));
    assert!(futures::poll!(idle.as_mut()).is_pending());
    text(&model).await.expect("scripted");
    assert_eq!(begin.elapsed(), Duration::from_secs(180));
    idle.await.expect("scripted");
    assert_eq!(begin.elapsed(), Duration::from_secs(180));
}
