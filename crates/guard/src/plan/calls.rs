//! The functions and operators that an expression of a plan calls.
//!
//! The server writes plans for people: `(SubPlan 1)` or `OVER (?)` are no SQL, so there is no tree to parse. But it
//! writes every call as a name and a parenthesis, qualifies whatever is not built in, and quotes each name that is a
//! keyword and not a free one. So the tokens tell, and what they cannot tell counts as a call.

use pg_query::protobuf::{KeywordKind, ScanToken, Token};

/// Keywords that a parenthesis may follow, though they could be names of functions too. No built-in one has such a name.
const NO_FUNCTIONS: &[&str] = &["by", "filter", "over", "second", "varying", "zone"];

/// A name in its parts, without quotes.
pub(super) type Name = Vec<String>;

/// `None` where the text has no tokens.
pub(super) fn calls(text: &str) -> Option<Vec<Name>> {
    let tokens = pg_query::scan(text).ok()?.tokens;
    let words = Words { text, tokens: &tokens };
    Some((0..tokens.len()).filter_map(|place| words.call_at(place)).collect())
}

struct Words<'a> {
    text: &'a str,
    tokens: &'a [ScanToken],
}

impl Words<'_> {
    /// What is called by the parenthesis at this place.
    fn call_at(&self, place: usize) -> Option<Name> {
        if !self.is(place, Token::Ascii40) || place == 0 {
            return None;
        }
        if self.word(place - 1).eq_ignore_ascii_case("operator") && !self.is_quoted(place - 1) {
            return Some(self.operator(place + 1));
        }
        let (start, name) = self.name_before(place)?;
        let is_type = start > 0 && self.is(start - 1, Token::Typecast);
        let is_word = name.len() == 1 && self.is_no_function(place - 1);
        (!is_type && !is_word).then_some(name)
    }

    /// `schema.name`, read backwards.
    fn name_before(&self, end: usize) -> Option<(usize, Name)> {
        let mut start = end.checked_sub(1).filter(|place| self.is_name(*place))?;
        let mut name = vec![self.unquoted(start)];
        while start >= 2 && self.is(start - 1, Token::Ascii46) && self.is_name(start - 2) {
            start -= 2;
            name.insert(0, self.unquoted(start));
        }
        Some((start, name))
    }

    /// `schema.+)`.
    fn operator(&self, from: usize) -> Name {
        let inside = (from..self.tokens.len()).take_while(|place| !self.is(*place, Token::Ascii41));
        inside.filter(|place| !self.is(*place, Token::Ascii46)).map(|place| self.unquoted(place)).collect()
    }

    fn is_no_function(&self, place: usize) -> bool {
        if self.is_quoted(place) {
            return false;
        }
        match self.tokens[place].keyword_kind() {
            KeywordKind::NoKeyword => false,
            KeywordKind::UnreservedKeyword => {
                NO_FUNCTIONS.contains(&self.word(place).to_ascii_lowercase().as_str())
            }
            // As a function's name the server would have quoted it.
            _ => true,
        }
    }

    fn is_name(&self, place: usize) -> bool {
        let token = &self.tokens[place];
        token.token() == Token::Ident || token.keyword_kind() != KeywordKind::NoKeyword
    }

    fn is(&self, place: usize, token: Token) -> bool {
        self.tokens.get(place).is_some_and(|found| found.token() == token)
    }

    fn is_quoted(&self, place: usize) -> bool {
        self.word(place).starts_with('"')
    }

    fn word(&self, place: usize) -> &str {
        let ScanToken { start, end, .. } = self.tokens[place];
        let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
        self.text.get(range).unwrap_or_default()
    }

    fn unquoted(&self, place: usize) -> String {
        let word = self.word(place);
        match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => word.to_ascii_lowercase(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("pg_sleep('1'::double precision)", &["pg_sleep"])]
    #[case("(lower(f.title) || upper('pg_sleep('::text))", &["lower", "upper"])]
    #[case("content.rebuild(f.id)", &["content.rebuild"])]
    #[case("content.\"of \"\"x\"\"(\"(f.id)", &["content.of \"x\"("])]
    #[case("\"left\"(f.title, 2)", &["left"])]
    #[case("\"filter\"(1)", &["filter"])]
    #[case("content.filter(1)", &["content.filter"])]
    #[case("(f.id OPERATOR(content.@@) 1)", &["content.@@"])]
    #[case("(f.id OPERATOR(\"My\".@@) ANY (f.ids))", &["My.@@"])]
    #[case("((a)::numeric(3,1) + (b)::content.money(2))", &[])]
    #[case("((a)::character varying(3) || (b)::timestamp(3) with time zone)", &[])]
    #[case("count(*) FILTER (WHERE (a > 1))", &["count"])]
    #[case("row_number() OVER (?)", &["row_number"])]
    #[case("sum(x) OVER (PARTITION BY (a + b))", &["sum"])]
    #[case("PARTIAL sum((a)::bigint)", &["sum"])]
    #[case("(SubPlan 1)", &[])]
    #[case("(ANY (a = (hashed SubPlan 1).col1))", &[])]
    #[case("(a = ANY ($0))", &[])]
    #[case("COALESCE(a, GREATEST(b, ROW(1)))", &[])]
    #[case("CASE WHEN (a) THEN (b) ELSE (c) END", &[])]
    #[case("EXTRACT(year FROM (x AT TIME ZONE ('UTC'::text)))", &[])]
    #[case("percentile_cont(0.5) WITHIN GROUP (ORDER BY (a))", &["percentile_cont"])]
    #[case("E'\\\\'::text", &[])]
    fn every_call_is_told_and_nothing_else(#[case] text: &str, #[case] told: &[&str]) {
        let told: Vec<String> = told.iter().map(|name| (*name).to_owned()).collect();
        let found: Vec<String> = calls(text).unwrap().iter().map(|name| name.join(".")).collect();
        assert_eq!(found, told);
    }
}
