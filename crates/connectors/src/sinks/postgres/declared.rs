//! Whether a column of the mart takes every value of a query's column as it is, by the types that both were declared
//! with. Postgres rounds to a declared precision without a word.

/// A type as `format_type` writes it: `timestamp(0) without time zone[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    /// Without modifiers and brackets.
    name: String,
    modifiers: Vec<i32>,
    is_array: bool,
}

impl Declared {
    pub(super) fn parse(text: &str) -> Self {
        let (element, is_array) = text.strip_suffix("[]").map_or((text, false), |element| (element, true));
        let parsed = element.split_once('(').and_then(|(before, rest)| {
            let (inside, after) = rest.split_once(')')?;
            let modifiers = inside.split(',').map(|number| number.trim().parse().ok());
            Some((format!("{before}{after}"), modifiers.collect::<Option<Vec<i32>>>()?))
        });
        let (name, modifiers) = parsed.unwrap_or_else(|| (element.to_owned(), Vec::new()));
        Self { name, modifiers, is_array }
    }

    /// Values of `query` arrive whole here, or are refused one by one, which is no silence.
    pub(super) fn takes(&self, query: &Self) -> bool {
        match (self.is_array, query.is_array) {
            (false, true) => self.is_text(),
            (true, false) => query.is_text() && self.takes_type(query),
            _ => self.takes_type(query) && self.takes_precision(query),
        }
    }

    /// Casts that keep the whole value; whoever wants another one writes it into the query. A padded text is none: its
    /// spaces mean nothing where it comes from, and something where it goes to.
    fn takes_type(&self, query: &Self) -> bool {
        let (name, from) = (self.name.as_str(), query.name.as_str());
        let reads_text = !["double precision", "real", "date", "jsonb", "money", "name", "\"char\""]
            .contains(&name)
            && !["point", "line", "lseg", "box", "path", "polygon", "circle", "bytea"].contains(&name)
            && !["time", "interval", "oid", "tsrange", "tsmultirange", "tstzrange", "tstzmultirange"]
                .iter()
                .any(|begin| name.starts_with(begin));
        if name == from {
            return true;
        }
        if self.is_text() {
            return !is_padded(from);
        }
        if query.is_text() {
            return reads_text;
        }
        let integers = ["smallint", "integer", "bigint"];
        match name {
            "smallint" | "integer" => integers.contains(&from),
            "bigint" => integers.contains(&from) || from == "oid",
            "numeric" => integers.contains(&from) || from == "money",
            "double precision" => ["real", "smallint", "integer"].contains(&from),
            "real" => from == "smallint",
            _ if name.starts_with("timestamp ") => from == "date" || from.starts_with("timestamp "),
            _ if name.starts_with("interval") => from.starts_with("interval"),
            "inet" => from == "cidr",
            "macaddr8" => from == "macaddr",
            "bit varying" => from == "bit",
            "json" => from == "jsonb",
            _ => is_padded(name) && is_padded(from) || (is_of_users(name) && is_of_users(from)),
        }
    }

    /// Two values of `query` that are not equal are not equal here either: as keys they stay two rows.
    pub(super) fn tells_apart(&self, query: &Self) -> bool {
        let (name, from) = (self.name.as_str(), query.name.as_str());
        let folds_case = |name: &str| name.rsplit('.').next() == Some("citext");
        let spelled = query.is_text() && !folds_case(from);
        match (self.is_array, query.is_array) {
            _ if folds_case(name) => folds_case(from) && self.is_array == query.is_array,
            (this, other) if ["text", "character varying"].contains(&name) => !this || other,
            (this, other) => name == from || (this == other && !spelled),
        }
    }

    /// It, or each of its elements.
    fn is_text(&self) -> bool {
        let last = self.name.rsplit('.').next().unwrap_or_default();
        ["text", "character varying", "citext"].contains(&last)
    }

    fn takes_precision(&self, query: &Self) -> bool {
        let integers = ["smallint", "integer", "bigint"];
        match (self.name.as_str(), self.modifiers.as_slice()) {
            ("numeric", [_, scale]) if integers.contains(&query.name.as_str()) => *scale >= 0,
            ("numeric", [_, scale]) => {
                query.name == "numeric" && query.modifiers.get(1).is_some_and(|theirs| theirs <= scale)
            }
            (name, [precision]) if is_time(name) => {
                query.name == "date" || query.digits().is_some_and(|digits| digits <= *precision)
            }
            ("interval", []) => true,
            // Of elements none is refused for itself.
            ("character varying" | "character", [longest]) if self.is_array => {
                let theirs = query.modifiers.first().filter(|_| query.name == self.name);
                theirs.is_some_and(|theirs| theirs <= longest)
            }
            (name, _) if name.starts_with("interval") => {
                let same_fields =
                    query.name.starts_with("interval") && (name == "interval" || name == query.name);
                same_fields && self.digits() >= query.digits()
            }
            _ => true,
        }
    }

    /// Of seconds, where it has any.
    fn digits(&self) -> Option<i32> {
        let has_seconds = is_time(&self.name) || self.name.starts_with("interval");
        has_seconds.then(|| self.modifiers.first().copied().unwrap_or(6))
    }

    /// Longest text that it holds. Spaces behind that are cut without a word.
    pub(super) fn longest(&self) -> Option<usize> {
        let is_limited = !self.is_array && ["character varying", "character"].contains(&self.name.as_str());
        self.modifiers.first().filter(|_| is_limited).and_then(|longest| usize::try_from(*longest).ok())
    }

    /// Its values are padded with spaces that mean nothing, or never longer than this.
    pub(super) fn fits_within(&self, longest: usize) -> bool {
        self.name == "character" || self.longest().is_some_and(|theirs| theirs <= longest)
    }
}

fn is_padded(name: &str) -> bool {
    ["character", "bpchar"].contains(&name)
}

/// Not of Postgres itself: enums, and what extensions bring.
fn is_of_users(name: &str) -> bool {
    name.contains('.')
}

fn is_time(name: &str) -> bool {
    name.starts_with("timestamp ") || name.starts_with("time ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mart_takes_what_it_can_hold_whole() {
        let takes = |mart: &str, query: &str| Declared::parse(mart).takes(&Declared::parse(query));
        for (mart, query) in [
            ("numeric", "numeric"),
            ("numeric", "numeric(6,2)"),
            ("numeric(6,2)", "numeric(6,2)"),
            ("numeric(6,2)", "numeric(20,1)"),
            ("numeric(6,2)", "bigint"),
            ("numeric(6,2)[]", "numeric(6,2)[]"),
            ("timestamp(3) without time zone", "timestamp(0) without time zone"),
            ("timestamp(0) without time zone", "date"),
            ("timestamp(6) with time zone", "timestamp with time zone"),
            ("timestamp without time zone", "timestamp with time zone"),
            ("time(6) without time zone", "time without time zone"),
            ("interval(3)", "interval(0)"),
            ("interval day to second(3)", "interval day to second(3)"),
            ("double precision", "real"),
            ("double precision", "integer"),
            ("text", "numeric"),
            ("character varying(5)", "text"),
            ("character varying(5)[]", "character varying(5)[]"),
            ("text", "text[]"),
            ("text[]", "character varying(3)[]"),
            ("character varying[]", "text[]"),
            ("uuid", "text"),
            ("bigint", "oid"),
            ("json", "jsonb"),
            ("analytics.genre", "content.genre"),
            ("public.citext", "text"),
            ("character(5)", "character(3)"),
            ("inet", "cidr"),
        ] {
            assert!(takes(mart, query), "{query} into {mart}");
        }
        for (mart, query) in [
            ("numeric(6,2)", "numeric"),
            ("numeric(6,2)", "numeric(6,3)"),
            ("numeric(6,2)", "text"),
            ("numeric(6,-2)", "integer"),
            ("numeric(6,2)[]", "numeric[]"),
            ("numeric", "double precision"),
            ("integer", "numeric(4,0)"),
            ("timestamp(0) without time zone", "timestamp without time zone"),
            ("timestamp(0) without time zone", "timestamp(3) with time zone"),
            ("timestamp(0) without time zone", "text"),
            ("time(0) without time zone", "time without time zone"),
            ("time without time zone", "time with time zone"),
            ("time without time zone", "interval"),
            ("date", "timestamp without time zone"),
            ("interval(0)", "interval"),
            ("interval day to second", "interval"),
            ("interval year to month", "interval"),
            ("real", "double precision"),
            ("real", "integer"),
            ("double precision", "bigint"),
            ("money", "numeric"),
            ("cidr", "inet"),
            ("name", "text"),
            ("\"char\"", "text"),
            ("boolean", "integer"),
            ("integer", "boolean"),
            ("text", "character(5)"),
            ("character varying", "character(5)"),
            ("character varying(3)[]", "text[]"),
            ("character varying(3)[]", "character varying(4)[]"),
            ("double precision", "text"),
            ("double precision[]", "text"),
            ("date", "text"),
            ("timestamp with time zone", "text"),
            ("interval", "text"),
            ("point", "text"),
            ("bytea", "text"),
            ("tstzrange", "text"),
            ("time without time zone", "text"),
            ("jsonb", "json"),
            ("jsonb", "text"),
            ("oid", "integer"),
            ("oid", "text"),
            ("tsrange", "tstzrange"),
            ("integer[]", "integer"),
        ] {
            assert!(!takes(mart, query), "{query} into {mart}");
        }
    }

    #[test]
    fn a_key_of_the_mart_tells_apart_what_the_query_tells_apart() {
        let tells = |mart: &str, query: &str| Declared::parse(mart).tells_apart(&Declared::parse(query));
        for (mart, query) in [
            ("text", "integer"),
            ("text", "public.citext"),
            ("text", "text[]"),
            ("text[]", "character varying(3)[]"),
            ("character varying[]", "text[]"),
            ("character varying(20)", "text"),
            ("bigint", "integer"),
            ("numeric", "numeric(6,2)"),
            ("public.citext", "public.citext"),
            ("public.citext", "extensions.citext"),
            ("timestamp with time zone", "timestamp without time zone"),
            ("analytics.genre", "content.genre"),
            ("text[]", "text[]"),
        ] {
            assert!(tells(mart, query), "{query} into {mart}");
        }
        for (mart, query) in [
            ("public.citext", "text"),
            ("public.citext[]", "text[]"),
            ("uuid", "text"),
            ("integer", "text"),
            ("numeric", "character varying(10)"),
            ("character(5)", "text"),
            ("timestamp with time zone", "text"),
            ("interval", "text"),
        ] {
            assert!(!tells(mart, query), "{query} into {mart}");
        }
    }

    #[test]
    fn texts_that_may_be_too_long_are_known() {
        let longest = |text: &str| Declared::parse(text).longest();
        assert_eq!((longest("character varying(5)"), longest("character varying")), (Some(5), None));
        assert!(Declared::parse("character varying(5)").fits_within(5));
        assert!(!Declared::parse("character varying(6)").fits_within(5));
        assert!(!Declared::parse("text").fits_within(5));
        assert!(Declared::parse("character(6)").fits_within(5), "what it pads with means nothing");
    }
}
