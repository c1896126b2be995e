//! SQL: what stored values weigh, as [`codec::weight`](crate::checkpoint::codec::weight) has it.

/// What a value weighs, from the expressions of its tag and of its bytes.
macro_rules! weight {
    ($tag:literal, $value:literal) => {
        concat!(
            "octet_length(",
            $value,
            ")::bigint * CASE WHEN ",
            $tag,
            " ~ '^b[0-9][0-9]?$' THEN substr(",
            $tag,
            ", 2)::int ELSE 1 END"
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
    use crate::checkpoint::codec::JSON_TEXT;

    #[test]
    fn statements_weigh_json_as_programs_do() {
        assert!(json_weight!("text").ends_with(&format!(" * {JSON_TEXT}")));
    }
}
