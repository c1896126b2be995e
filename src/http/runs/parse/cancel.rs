//! The body of a request that cancels runs.

use crate::{
    http::{
        parse::{fields::Fields, ids},
        server::Error,
    },
    runs::{
        cancel::many::RUNS,
        request::{Cancel, CancelStatus},
    },
    value::Value,
};

/// Reads which runs to cancel.
pub(in super::super) fn cancel(body: &Value) -> Result<Cancel, Error> {
    let fields = Fields::of(body)?;
    let (thread, runs) = (fields.text("thread_id")?, fields.texts("run_ids")?);
    if let Some(status) = fields.word("status", CancelStatus::ALL)? {
        // A request that names runs does not mean all of them.
        return if thread.is_none() && runs.is_none() {
            Ok(Cancel::Status(status))
        } else {
            Err(Error::invalid(
                "Give either `status`, or `thread_id` and `run_ids`, not both",
            ))
        };
    }
    let (Some(thread), Some(runs)) = (thread, runs) else {
        return Err(Error::invalid(
            "Either `status`, or `thread_id` and `run_ids` are needed",
        ));
    };
    let thread = ids::thread(thread)?;
    if runs.len() > RUNS {
        return Err(fields.refuse(
            "run_ids",
            format!("At most {RUNS} runs are cancelled at once"),
        ));
    }
    let runs = runs.iter().map(|id| id.parse());
    let runs = runs.collect::<Result<Vec<_>, _>>();
    let runs = runs.map_err(|_| Error::invalid("Invalid run ID: must be a UUID"))?;
    Ok(Cancel::Runs(thread, runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn runs_to_cancel_are_named_by_status_or_by_id() {
        let id = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
        let all = cancel(&value!({"status": "all"})).unwrap();
        assert_eq!(all, Cancel::Status(CancelStatus::All));
        let some = cancel(&value!({"thread_id": id, "run_ids": [id]})).unwrap();
        assert_eq!(
            some,
            Cancel::Runs(id.parse().unwrap(), vec![id.parse().unwrap()])
        );
        let many = |count| Value::list((0..count).map(|_| Value::from(id)).collect());
        assert!(cancel(&value!({"thread_id": id, "run_ids": (many(RUNS))})).is_ok());
        for body in [
            value!({}),
            value!({"thread_id": id, "run_ids": (many(RUNS + 1))}),
            value!({"status": "bogus"}),
            value!({"thread_id": id}),
            value!({"thread_id": "x", "run_ids": []}),
            value!({"thread_id": id, "run_ids": ["x"]}),
        ] {
            assert_eq!(cancel(&body).unwrap_err().status, 422, "{body}");
        }
    }
}
