//! The numbers that storages store for the types of events.

/// The number that storages store for a type, by the name of the type's constant. A number is never
/// used for another type. It is a literal, so that it can be part of the text of a statement and
/// partial indexes serve that.
macro_rules! event_code {
    (THREAD_CREATED) => {
        1
    };
    (THREAD_FORKED) => {
        2
    };
    (USER_MESSAGE_ADDED) => {
        3
    };
    (LLM_RESPONSE_GENERATED) => {
        4
    };
    (MESSAGE_ADDED) => {
        5
    };
    (MESSAGE_EDITED) => {
        6
    };
    (MESSAGE_REMOVED) => {
        7
    };
    (CHECKPOINT_CREATED) => {
        8
    };
    (BRANCH_CREATED) => {
        9
    };
    (BRANCH_ACTIVATED) => {
        10
    };
    (BRANCH_HEAD_RESET) => {
        11
    };
    (BRANCH_RENAMED) => {
        12
    };
    (BRANCH_DELETED) => {
        13
    };
    (TAG_SET) => {
        14
    };
    (TAG_DELETED) => {
        15
    };
    (RUN_ENQUEUED) => {
        16
    };
    (RUN_STARTED) => {
        17
    };
    (RUN_FINISHED) => {
        18
    };
    // Two events in one row.
    (ENQUEUED_AND_STARTED) => {
        19
    };
    (CREATED_AND_FINISHED) => {
        20
    };
}
pub(crate) use event_code;
