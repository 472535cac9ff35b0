//! What somebody has meant who typed a name that there is not.

/// The known name that a slip of the fingers would make of it.
pub(crate) fn nearest<'a, T: AsRef<str>>(unknown: &str, known: &'a [T]) -> Option<&'a str> {
    let distance = |name: &&str| strsim::damerau_levenshtein(unknown, name);
    let near = known.iter().map(AsRef::as_ref).min_by_key(distance)?;
    (distance(&near) <= (unknown.chars().count() / 3).max(1)).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["films", "ratings", "film_search"];
        for (typed, meant) in [
            ("flims", Some("films")),
            ("film", Some("films")),
            ("film_serach", Some("film_search")),
            ("users", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &known), meant, "{typed}");
        }
    }
}
