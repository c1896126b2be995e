//! SQL: what stored values weigh, as [`codec::weight`](crate::checkpoint::codec::weight) has it.

/// What a value weighs, from the expressions of its tag and of its bytes.
macro_rules! weight {
    ($tag:literal, $value:literal) => {
        concat!(
            "octet_length(",
            $value,
            ") * CASE WHEN ",
            $tag,
            " GLOB 'b[0-9]' OR ",
            $tag,
            " GLOB 'b[0-9][0-9]' OR ",
            $tag,
            " GLOB 'json[0-9]' OR ",
            $tag,
            " GLOB 'json[0-9][0-9]' OR ",
            $tag,
            " GLOB 'results[0-9]' OR ",
            $tag,
            " GLOB 'results[0-9][0-9]' THEN CAST(ltrim(",
            $tag,
            ", 'abcdefghijklmnopqrstuvwxyz') AS INTEGER) ELSE 1 END"
        )
    };
}

/// What a JSON text weighs at most.
macro_rules! json_weight {
    ($text:literal) => {
        concat!("octet_length(", $text, ") * 12")
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
