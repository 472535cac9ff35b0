//! Hints name commands, which a person copies into a shell.

/// As one word of a shell: in quotes where it would be several, or something else.
pub fn shell_word(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn what_a_shell_would_read_in_another_way_is_quoted() {
        for (text, word) in [
            ("content.film", "content.film"),
            ("\"sales-2024\".\"Order-Lines\"", "'\"sales-2024\".\"Order-Lines\"'"),
            ("Order Id,line-no", "'Order Id,line-no'"),
            ("it's", r"'it'\''s'"),
            ("$(rm x)", "'$(rm x)'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
