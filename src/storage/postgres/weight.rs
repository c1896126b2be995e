//! SQL: what stored values weigh, as [`codec::weight`](crate::checkpoint::codec::weight) has it.

/// What a value weighs, from the expressions of its tag and of its bytes.
macro_rules! weight {
    ($tag:literal, $value:literal) => {
        concat!(
            "octet_length(",
            $value,
            ")::bigint * CASE WHEN ",
            $tag,
            " ~ '^(b|json|results)[0-9][0-9]?$' THEN ltrim(",
            $tag,
            ", 'abcdefghijklmnopqrstuvwxyz')::int ELSE 1 END"
        )
    };
}

/// What a value takes in memory once it is decoded, from the same expressions, as
/// [`codec::memory`](crate::checkpoint::codec::memory) has it.
macro_rules! memory {
    ($tag:literal, $value:literal) => {
        concat!(
            "(",
            weight!($tag, $value),
            ") * 6 - octet_length(",
            $value,
            ")::bigint * 7 / 2"
        )
    };
}

/// What a JSON text weighs at most.
macro_rules! json_weight {
    ($text:literal) => {
        concat!("octet_length(", $text, ")::bigint * 12")
    };
}

#[cfg(test)]
mod tests {
    use crate::checkpoint::codec::{IN_MEMORY, JSON_TEXT, memory};

    #[test]
    fn statements_weigh_json_as_programs_do() {
        assert!(json_weight!("text").ends_with(&format!(" * {JSON_TEXT}")));
    }
    #[test]
    fn statements_know_the_memory_of_values_as_programs_do() {
        let text = memory!("tag", "value");
        assert!(text.contains(&format!(") * {IN_MEMORY} - ")), "{text}");
        assert!(text.ends_with(" * 7 / 2"), "{text}");
        assert_eq!(memory(100, 10), 600 - 10 * 7 / 2);
    }
}
