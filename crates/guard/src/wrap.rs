//! A checked query as a sub-select of a larger statement.

use pg_query::protobuf::Token;

/// On lines of its own, so that a comment at its end cannot swallow the parenthesis. Only for SQL
/// that `check` found clean: what is no statement by itself could close the parenthesis.
pub fn wrap(sql: &str) -> String {
    format!("(\n{}\n) q", without_semicolon(sql))
}

fn without_semicolon(sql: &str) -> &str {
    let tokens = pg_query::scan(sql).map(|scanned| scanned.tokens).unwrap_or_default();
    let is_trailing = |token: Token| matches!(token, Token::Ascii59 | Token::SqlComment | Token::CComment);
    let trailing = tokens.iter().rev().take_while(|token| is_trailing(token.token()));
    let semicolon = trailing.filter(|token| token.token() == Token::Ascii59).last();
    semicolon.and_then(|token| sql.get(..usize::try_from(token.start).ok()?)).unwrap_or(sql)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("select 1", "select 1")]
    #[case::semicolon("select 1;", "select 1")]
    #[case::comment("select 1 -- one", "select 1 -- one")]
    #[case::semicolon_in_a_comment("select 1 -- one;", "select 1 -- one;")]
    #[case::semicolons_and_comments("select 'ж;' ; -- one;\n ; /* two; */", "select 'ж;' ")]
    fn a_wrapped_query_ends_before_its_semicolon(#[case] sql: &str, #[case] kept: &str) {
        assert_eq!(wrap(sql), format!("(\n{kept}\n) q"));
    }
}
