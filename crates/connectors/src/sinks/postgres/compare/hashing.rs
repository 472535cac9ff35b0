//! Hashes of rows: two of 64 bits each, which sums over ranges of keys are made of.
//!
//! Each column's value is hashed upon what comes before, by the function of its type. Those functions are made for hash
//! tables: a zero, NaN or infinity answers the seed, a numeric's sign does not count, and a bigint or timestamp is folded
//! to 32 bits first. So the seed of every column is first mixed with a number for its place and the class of its value,
//! and the two hashes take what is folded in two ways. The numbers are drawn anew for every comparison: nobody can
//! construct rows that agree in them.

use std::fmt::Write;

use super::form::Form;

/// How rows are hashed, with what is drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hashing {
    /// By the functions of the types: fast, and the same on servers that answer `VECTORS` alike.
    Native(u64),
    /// By md5 of the texts: the same everywhere.
    Portable(u64),
}

/// Releases and machines on which all of these agree hash alike; text is hashed as it is encoded.
pub(super) const VECTORS: &str = "select current_setting('server_encoding') || array[hashint4extended(-42, 7), hashint8extended(1234567890123456, 7),
    hashint8extended(-1234567890123456, 7), hashfloat8extended(1.5, 7), hashfloat8extended('NaN', 7), hashfloat8extended('-Infinity', 7),
    hash_numeric_extended(-1234567.890, 7), hashtextextended('Text' collate \"C\", 7),
    uuid_hash_extended('6a2f41a3-c54c-fce8-32d2-0324e1c32e22', 7), timestamp_hash_extended('2024-02-29 12:34:56.789', 7),
    time_hash_extended('12:34:56.789', 7)]::text";

/// A compared column: its form, and its value as an expression.
pub(super) type Value = (Form, String);

/// One of the two hashes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    One,
    Two,
}

impl Hashing {
    /// Drawn for one comparison.
    pub(super) fn draw(is_native: bool) -> Self {
        let drawn = fastrand::u64(..);
        if is_native { Self::Native(drawn) } else { Self::Portable(drawn) }
    }

    /// What the hashes of a row are computed from, as columns of a subselect whose names begin with a prefix.
    pub(super) fn inputs(self, values: &[Value], prefix: &str) -> String {
        match self {
            Self::Native(_) => {
                let input = |(place, (form, value)): (usize, &Value)| {
                    let class = match form {
                        Form::Numeric => format!(", {} as {prefix}{place}c", class(value)),
                        _ => String::new(),
                    };
                    format!("{} as {prefix}{place}{class}", form.input(value))
                };
                values.iter().enumerate().map(input).collect::<Vec<_>>().join(", ")
            }
            Self::Portable(drawn) => {
                let text = |(form, value): &Value| {
                    let text = match form {
                        Form::Float | Form::Numeric => form.shown(value),
                        _ => format!("({value})::text"),
                    };
                    format!("coalesce(length({text}) || ':' || {text}, '-')")
                };
                let texts = values.iter().map(text).collect::<Vec<_>>().join(" || ");
                format!("md5(convert_to('{drawn:x}:' || {texts}, 'UTF8')) as {prefix}m")
            }
        }
    }

    /// The two hashes, of columns that `inputs` has named.
    pub(super) fn hashes(self, values: &[Value], prefix: &str) -> [String; 2] {
        match self {
            Self::Native(drawn) => [Lane::One, Lane::Two].map(|lane| lane.chain(values, drawn, prefix)),
            Self::Portable(_) => {
                ["left", "right"].map(|half| format!("('x' || {half}({prefix}m, 16))::bit(64)::int8"))
            }
        }
    }
}

/// Told by the type's own function neither from each other nor, as far as the sign goes, from other numbers.
fn class(value: &str) -> String {
    format!(
        "case when scale({value}) is null then case {value} when 'NaN' then 2 when 'Infinity' then 3 when '-Infinity' then 4 end
              when {value} < 0 then 1 else 0 end"
    )
}

impl Lane {
    fn chain(self, values: &[Value], drawn: u64, prefix: &str) -> String {
        let mut rng =
            fastrand::Rng::with_seed(drawn ^ if self == Self::One { 0 } else { 0x9e37_79b9_7f4a_7c15 });
        let mut draw = move || format!("({})", rng.i64(..) | 1 << 40);
        values.iter().enumerate().fold(draw(), |before, (place, (form, _))| {
            let (value, mut seed) = (format!("{prefix}{place}"), format!("{before} # case "));
            if *form == Form::Numeric {
                for class in 0..=4 {
                    let _ = write!(seed, "when {value}c = {class} then {} ", draw());
                }
            }
            let _ = write!(seed, "when {value} is null then {} else {} end", draw(), draw());
            self.hash(*form, &value, &seed)
        })
    }

    /// A NULL has a seed of its own: any value does for it.
    fn hash(self, form: Form, value: &str, seed: &str) -> String {
        match (form, self) {
            (Form::Bool | Form::Int | Form::Date, _) => {
                format!("hashint4extended(coalesce({value}, 0), {seed})")
            }
            (Form::Float, _) => format!("hashfloat8extended(coalesce({value}, 0), {seed})"),
            (Form::Numeric, _) => format!("hash_numeric_extended(coalesce({value}, 0), {seed})"),
            (Form::Uuid, _) => {
                let null = "'00000000-0000-0000-0000-000000000000'";
                format!("uuid_hash_extended(coalesce({value}, {null}), {seed})")
            }
            // What two folded values share their doubles do not, and the other way round.
            (Form::BigInt, Self::One) => format!("hashint8extended(coalesce({value}, 0), {seed})"),
            (Form::BigInt, Self::Two) => format!("hashfloat8extended(coalesce({value}, 0)::float8, {seed})"),
            (Form::Timestamp | Form::Timestamptz, Self::One) => {
                format!("timestamp_hash_extended(coalesce({value}, '2000-01-01'), {seed})")
            }
            (Form::Time, Self::One) => format!("time_hash_extended(coalesce({value}, '00:00'), {seed})"),
            (Form::Timestamp | Form::Timestamptz | Form::Time, Self::Two) => {
                format!("hashfloat8extended(coalesce(date_part('epoch', {value}), 0), {seed})")
            }
            _ => format!("hashtextextended(coalesce({value}, '') collate \"C\", {seed})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_every_column_depends_on_its_place_and_on_being_null_and_nothing_is_drawn_twice() {
        let values = [(Form::Float, "q.a".to_owned()), (Form::Numeric, "q.b".to_owned())];
        let [one, two] = Hashing::Native(7).hashes(&values, "v");
        assert_eq!((one.matches("hashfloat8extended").count(), two.matches("v1 is null").count()), (1, 1));
        let drawn = |sql: &str| {
            let numbers = sql.split('(').filter_map(|part| part.split_once(')')?.0.parse::<i64>().ok());
            numbers.collect::<Vec<_>>()
        };
        let mut all = [drawn(&one), drawn(&two)].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((count, all.len()), (20, 20), "{one} {two}");
        assert_eq!(Hashing::Native(7).hashes(&values, "v"), [one, two], "both sides are asked the same");
    }
}
