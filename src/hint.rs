//! Hints for misspelt names: the one of the known names that was probably meant.

/// Longer names are not compared: the time that it takes grows with the product of the lengths.
const LONGEST: usize = 64;
/// Most names that are compared.
const MOST: usize = 1000;
/// How alike two names are at least of which one was probably meant, from 0 to 1.
const ALIKE: f64 = 0.6;

/// ` (did you mean `x`?)` with the name that is most like `name`, or nothing if none is.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// The known name that is most like `name`.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let likeness = |other: &str| {
        let (one, other) = (name.to_lowercase(), other.to_lowercase());
        strsim::normalized_damerau_levenshtein(&one, &other)
    };
    known
        .into_iter()
        .take(MOST)
        .filter(|other| other.len() <= LONGEST)
        .map(|other| (likeness(other), other))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_probably_meant_is_found_and_others_are_not() {
        let known = ["messages", "notes", "topic"];
        for (name, meant) in [
            ("mesages", "messages"),
            ("note", "notes"),
            ("Topic", "topic"),
            ("topci", "topic"),
        ] {
            assert_eq!(nearest(name, known), Some(meant));
        }
        for unlike in ["question", "", "x", &"messages".repeat(1000)] {
            assert_eq!(did_you_mean(unlike, known), "");
        }
        assert_eq!(did_you_mean("note", known), " (did you mean `notes`?)");
    }
}
