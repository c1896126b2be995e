//! The body of a message that a run replies to.

use super::{
    behind,
    incoming::{check_content, check_new_id},
};
use crate::{
    http::{
        parse::{address, fields::Fields, ids},
        server::Error,
    },
    runs::{Strategy, request::Requester},
    threads::messages::{NewMessage, is_blank},
    tree::{AddressFields, messages::send::SendTarget},
    value::Value,
};

/// The body of a message that a run replies to.
pub(in super::super) fn send(body: &Value, requester: Requester) -> Result<NewMessage, Error> {
    let fields = Fields::of(body)?;
    let thread = fields.text("thread_id")?;
    let thread = thread.ok_or_else(|| fields.required("thread_id"))?;
    let thread = ids::thread(thread)?;
    let content = match body.get("content") {
        None => return Err(fields.required("content")),
        Some(Value::Null) => Value::Null,
        Some(content) => {
            check_content(&fields, content)?;
            content.clone()
        }
    };
    if is_blank(&content) {
        let detail = "The message says nothing: `content` is blank";
        return Err(Error::bad_request(detail).with_code("blank_message"));
    }
    let id = fields.text("message_id")?.cloned();
    if let Some(id) = &id {
        check_new_id(&fields, "message_id", id)?;
    }
    let parent = fields.text("parent_id")?.cloned();
    let (parent, branch) = behind(AddressFields {
        // Here `message_id` is that of the new message.
        messages: parent.into_iter().collect(),
        ..address::of_body(&fields)?
    })?;
    let assistant = fields.text("assistant_id")?;
    Ok(NewMessage {
        thread,
        content,
        to: SendTarget { id, parent, branch },
        assistant: assistant.map(|text| ids::assistant(text)),
        strategy: fields
            .word("multitask_strategy", Strategy::ALL)?
            .unwrap_or_default(),
        requester,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::refused, *};
    use crate::value;

    #[test]
    fn a_message_to_be_answered_says_something() {
        let thread = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
        let body = |content: Value| value!({"thread_id": thread, "content": content});
        for blank in [
            value!(""),
            value!(" \n\t"),
            value!([]),
            value!(null),
            value!([{"type": "text", "text": " "}]),
        ] {
            let refused = refused(send(&body(blank), Requester::unrestricted()));
            assert_eq!(refused, (400, Some("blank_message")));
        }
        assert!(send(&body(value!("hi")), Requester::unrestricted()).is_ok());
        assert!(
            send(
                &body(value!([{"type": "image_url", "image_url": "x"}])),
                Requester::unrestricted()
            )
            .is_ok()
        );
        for wrong in [
            value!({"content": "hi"}),
            value!({"thread_id": "x", "content": "hi"}),
            value!({"thread_id": thread}),
            value!({"thread_id": thread, "content": 5}),
            value!({"thread_id": thread, "content": "hi", "branch": "main", "parent_id": "a"}),
            value!({"thread_id": thread, "content": "hi", "multitask_strategy": "x"}),
            value!({"thread_id": thread, "content": "hi", "message_id": ""}),
        ] {
            assert_eq!(
                refused(send(&wrong, Requester::unrestricted())).0,
                422,
                "{wrong:?}"
            );
        }
    }
}
