//! The sizes of expressions, from the leaves up.

use serde_json::Value;

use super::scope::{ARRAY_OF_ROWS, Scope, list};
use super::{MAX_BUILT_BYTES, STEPS_OF_AN_EXPRESSION, STORED, Size, UNBOUNDED, Work, sum};
use crate::rules::{names, text};

/// Dates and truths, and what any element of an array has.
const FEW: u64 = 4;
/// Of the text, without a point.
const NUMBER: u64 = 4;
/// A numeric value has no more digits: 131072 before the point and 16383 behind it.
pub(super) const MAX_DIGITS: u64 = 147_455;
/// To an exponent that only the rows know. Few are so large, and many powers may be taken for it.
const DIGITS_OF_A_POWER: u64 = 32_768;
/// A step takes so many digits at once. A division takes longer.
const DIGITS_MULTIPLIED: u64 = 64;
pub(super) const DIGITS_DIVIDED: u64 = 48;

/// Operators that look at every element of one operand for each of the other.
const PAIRING: &[&str] =
    &["&&", "@>", "<@", "?#", "?|", "?&", "~=", "~~", "!~~", "~~*", "!~~*", "-", "&<", "&>"];
const NUMERIC: &[&str] = &["*", "/", "%", "^", "+", "-"];
const COMPARING: &[&str] = &["=", "<>", "!=", "<", ">", "<=", ">=", "?", "~", "~*", "!~", "!~*"];
const SHORT_TYPES: [&str; 10] =
    ["int2", "int4", "int8", "float4", "float8", "bool", "date", "timestamp", "timestamptz", "uuid"];
/// Expressions that may give an array whose elements are known.
const GIVING_ELEMENTS: [&str; 5] = ["ColumnRef", "FuncCall", "SelectStmt", "SubLink", "CoalesceExpr"];
/// Numbers of the parser's enumerations.
const GREATEST: i32 = 1;
const NULLIF: i32 = 6;
const IN: i32 = 7;
const BETWEEN: [i32; 2] = [11, 12];
const BETWEEN_SYMMETRIC: [i32; 2] = [13, 14];
const PAIRS: &str =
    "keep one side short: a list of constants, or a column of a table; bound texts, such as left(x, 1000)";

impl Work<'_> {
    /// All that stands in a place of the tree, whatever it is for.
    pub(super) fn expressions(&mut self, value: &Value, scope: &Scope, at: usize) -> Size {
        match value {
            Value::Array(items) => {
                let sizes: Vec<Size> = items.iter().map(|item| self.expressions(item, scope, at)).collect();
                sum(&sizes)
            }
            Value::Object(object) if object.contains_key("node") => self.expression(value, scope, at),
            Value::Object(_) => self.parts(value, scope, at),
            _ => sum(&[]),
        }
    }

    fn parts(&mut self, body: &Value, scope: &Scope, at: usize) -> Size {
        let fields = body.as_object().into_iter().flatten();
        let parts = fields
            .filter(|(field, _)| !matches!(field.as_str(), "type_name" | "alias" | "name" | "oper_name"));
        let sizes: Vec<Size> = parts.map(|(_, part)| self.expressions(part, scope, at)).collect();
        sum(&sizes)
    }

    pub(super) fn expression(&mut self, node: &Value, scope: &Scope, above: usize) -> Size {
        let Some((kind, body)) = node["node"].as_object().and_then(|node| node.iter().next()) else {
            return sum(&[]);
        };
        let at = body["location"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(above);
        let size = match kind.as_str() {
            "AConst" => literal(body),
            "ColumnRef" => {
                let size = scope.column(&body["fields"]);
                // `q.sqrt` may be a function of all that q is.
                match names(&body["fields"]).as_slice() {
                    [_, .., name] => {
                        let steps = self.steps_of(name, &[size], size.bytes, &Value::Null, at);
                        Size { steps: size.steps.saturating_add(steps), ..size }
                    }
                    _ => size,
                }
            }
            "ParamRef" => Size::STORED,
            "FuncCall" => self.call(body, scope, at),
            "AExpr" => self.operation(body, scope, at),
            "TypeCast" => self.cast(body, scope, at),
            "AArrayExpr" => {
                let sizes = self.each(&body["elements"], scope, at);
                let size = sum(&sizes
                    .iter()
                    .map(|size| Size { bytes: size.bytes.max(FEW), ..*size })
                    .collect::<Vec<_>>());
                self.built("an array", size.escaped(), at)
            }
            "RowExpr" => {
                let size = self.parts(body, scope, at);
                self.built("a row", size.escaped(), at)
            }
            "SubLink" => self.sub_link(body, scope, at),
            "CaseExpr" => {
                let tested = self.expressions(&body["arg"], scope, at);
                let whens = list(&body["args"]).iter().map(|when| &when["node"]["CaseWhen"]);
                let tests = whens
                    .clone()
                    .map(|when| self.expression(&when["expr"], scope, at))
                    .fold(tested, Size::and);
                let results = whens.map(|when| &when["result"]).chain([&body["defresult"]]);
                let results: Vec<Size> = results.map(|result| self.expression(result, scope, at)).collect();
                let result = one_of(&results);
                Size {
                    steps: result.steps.saturating_add(tests.steps),
                    varies: result.varies || tests.varies,
                    ..result
                }
            }
            "CoalesceExpr" => one_of(&self.each(&body["args"], scope, at)),
            "MinMaxExpr" => {
                let sizes = self.each(&body["args"], scope, at);
                let least = sizes.iter().filter_map(|size| size.number).min();
                let is_greatest = body["op"] == GREATEST;
                let one = one_of(&sizes);
                if is_greatest { one } else { Size { number: least, ..one } }
            }
            "BoolExpr" | "NullTest" | "BooleanTest" | "GroupingFunc" | "SqlvalueFunction" => {
                Size { bytes: FEW, ..self.parts(body, scope, at) }
            }
            "AIndirection" => {
                let argument = self.expression(&body["arg"], scope, at);
                let size = argument.and(self.expressions(&body["indirection"], scope, at));
                match list(&body["indirection"]).last().map(|last| &last["node"]) {
                    Some(last) if !last["String"].is_null() => {
                        let name = text(&last["String"]["sval"]);
                        self.called(name, &[size], &Value::Null, at)
                    }
                    Some(last) if last["AIndices"]["is_slice"] == Value::Bool(false) => {
                        Size { bytes: argument.element.unwrap_or(size.bytes), ..size }
                    }
                    _ => size,
                }
            }
            "SelectStmt" => {
                let columns = self.select(body, scope, at);
                columns.named.into_iter().map(|(_, size)| size).reduce(Size::and).unwrap_or(Size::UNBOUNDED)
            }
            "NamedArgExpr" | "CollateClause" => self.expression(&body["arg"], scope, at),
            _ => self.parts(body, scope, at),
        };
        let element = size.element.filter(|_| GIVING_ELEMENTS.contains(&kind.as_str()));
        Size { steps: size.steps.saturating_add(STEPS_OF_AN_EXPRESSION), element, ..size }
    }

    pub(super) fn each(&mut self, values: &Value, scope: &Scope, at: usize) -> Vec<Size> {
        list(values).iter().map(|value| self.expression(value, scope, at)).collect()
    }

    fn operation(&mut self, body: &Value, scope: &Scope, at: usize) -> Size {
        let name = names(&body["name"]).last().copied().unwrap_or_default();
        let left = self.expressions(&body["lexpr"], scope, at);
        let right = self.expressions(&body["rexpr"], scope, at);
        // The server writes them out: `x >= a and x <= b`, `x = a or x = b`.
        let (left, right) = match body["kind"].as_i64().and_then(|kind| i32::try_from(kind).ok()) {
            Some(IN) => {
                (left.times(list(&body["rexpr"]["node"]["List"]["items"]).len().max(1) as u64), right)
            }
            Some(kind) if BETWEEN.contains(&kind) => (left.times(2), right),
            Some(kind) if BETWEEN_SYMMETRIC.contains(&kind) => (left.times(4), right.times(2)),
            _ => (left, right),
        };
        let size = self.operator(name, left, right, at);
        if body["kind"] == NULLIF { Size { bytes: left.bytes, ..size } } else { size }
    }

    pub(super) fn operator(&mut self, name: &str, left: Size, right: Size, at: usize) -> Size {
        let both = left.and(right);
        let larger = left.bytes.max(right.bytes);
        let digits = |size: Size| size.bytes.min(MAX_DIGITS);
        let (bytes, steps) = match name {
            "*" => (
                (digits(left) + digits(right)).min(MAX_DIGITS),
                digits(left) * digits(right) / DIGITS_MULTIPLIED,
            ),
            "/" | "%" => (larger, digits(left) * digits(right) / DIGITS_DIVIDED),
            "^" => (power(left, right), multiplied(power(left, right))),
            // Two paths are one after the other; numbers are never so long.
            "+" if left.bytes.min(right.bytes) > STORED => (both.bytes, 0),
            "+" => (larger, 0),
            "->" | "->>" | "#>" | "#>>" | "#-" | "<<" | ">>" | "&" | "|" | "#" => (larger, both.bytes),
            "||" => (both.bytes, both.bytes),
            // The distance of two paths is that of each of their segments from each other.
            "<->" => (larger, pairs(left, right).saturating_mul(8)),
            // Text on the right is read as a query.
            "@@" => (FEW, both.bytes.saturating_add(right.bytes.saturating_mul(right.bytes) / 4)),
            // A path may compare all of the document with all of it.
            "@?" => (FEW, pairs(left, left)),
            "-" => (larger, pairs(left, right)),
            name if PAIRING.contains(&name) => (FEW, pairs(left, right)),
            name if COMPARING.contains(&name) => (FEW, both.bytes),
            _ => (both.bytes, pairs(left, right)),
        };
        let steps = self.work(&format!("operator {name}"), steps, PAIRS, at);
        let size = Size { bytes, steps: both.steps.saturating_add(steps), ..both };
        // However numbers are reckoned, they have no more digits.
        if bytes <= MAX_DIGITS && NUMERIC.contains(&name) {
            return size;
        }
        self.built(&format!("operator {name}"), size, at)
    }

    fn cast(&mut self, body: &Value, scope: &Scope, at: usize) -> Size {
        let argument = self.expression(&body["arg"], scope, at);
        let kind = &body["type_name"];
        let name = names(&kind["names"]).last().copied().unwrap_or_default();
        let length =
            list(&kind["typmods"]).first().and_then(|length| literal(&length["node"]["AConst"]).number);
        let plain = Size { is_literal: false, ..argument };
        let size = match (name, length) {
            // Each element has the length, and nobody knows how many there are.
            ("bpchar" | "bit", Some(length)) if !list(&kind["array_bounds"]).is_empty() => {
                Size { bytes: argument.bytes.max(1).saturating_mul(self.length(length, at)), ..plain }
            }
            _ if !list(&kind["array_bounds"]).is_empty() => plain,
            ("bpchar", Some(length)) => {
                let length = self.length(length, at);
                Size { bytes: argument.bytes.min(length.saturating_mul(4)).max(length), ..plain }
            }
            ("bit", Some(length)) => Size { bytes: self.length(length, at), ..plain },
            ("varchar", Some(length)) => {
                Size { bytes: argument.bytes.min(length.saturating_mul(4)), ..plain }
            }
            (name, _) if SHORT_TYPES.contains(&name) => Size { bytes: FEW, ..plain },
            ("path", _) => Size { bytes: argument.bytes.max(STORED + 1), ..plain },
            // Text that the query puts together may say 1e131071.
            ("numeric" | "jsonb", _)
                if !argument.varies && !argument.is_literal && argument.bytes > NUMBER =>
            {
                Size { bytes: argument.bytes.max(MAX_DIGITS), ..plain }
            }
            // Other texts are known as they stand; what an array or a row becomes has its quotes twice.
            ("text" | "varchar" | "bpchar", _) if argument.is_literal => argument,
            ("text" | "varchar" | "bpchar", _) => plain.escaped(),
            _ => plain,
        };
        // Where it is still a number of the text, it was one before.
        let number = argument.number.filter(|_| matches!(name, "int2" | "int4" | "int8" | "numeric"));
        let size = Size { number, ..size };
        match name {
            "numeric" => Size { bytes: size.bytes.min(MAX_DIGITS), ..size },
            _ => self.built(&format!("a cast to {name}"), size, at),
        }
    }

    /// Of a type that fills its values up.
    fn length(&mut self, length: u64, at: usize) -> u64 {
        if length > MAX_BUILT_BYTES {
            let message = format!("a type has a length of more than {MAX_BUILT_BYTES}");
            self.refuse(at, "sql.value_too_large", message, "write a shorter one, or the type text");
        }
        length.min(MAX_BUILT_BYTES)
    }

    /// `as t(a char(10), b int)`: of a value that comes from somewhere else.
    pub(super) fn typed(&mut self, type_name: &Value, value: Size, at: usize) -> Size {
        let name = names(&type_name["names"]).last().copied().unwrap_or_default();
        let length = list(&type_name["typmods"]).first();
        let length = length.and_then(|length| literal(&length["node"]["AConst"]).number);
        let is_array = !list(&type_name["array_bounds"]).is_empty();
        match (name, length) {
            ("bpchar" | "bit", Some(length)) => {
                let bytes = self.length(length, at).saturating_mul(if is_array { UNBOUNDED } else { 1 });
                Size { bytes: bytes.clamp(value.bytes, UNBOUNDED.max(value.bytes)), varies: true, ..value }
            }
            (name, _) if SHORT_TYPES.contains(&name) && !is_array => Size { bytes: FEW, ..value },
            _ => value,
        }
    }

    fn sub_link(&mut self, body: &Value, scope: &Scope, at: usize) -> Size {
        let tested = self.expressions(&body["testexpr"], scope, at);
        let before = self.steps;
        let column = self.expressions(&body["subselect"], scope, at);
        // Where the value is copied to, the whole query is.
        let tested = Size { steps: tested.steps.saturating_add(self.steps - before), ..tested };
        let name = names(&body["oper_name"]).last().copied();
        match (body["sub_link_type"].as_i64(), name) {
            (Some(ARRAY_OF_ROWS), _) => {
                Size { steps: tested.steps, element: Some(column.bytes), ..Size::UNBOUNDED }
            }
            (_, Some(name)) => self.operator(name, tested, column, at),
            _ => Size {
                varies: true,
                number: None,
                is_literal: false,
                bytes: column.bytes.min(UNBOUNDED),
                ..tested
            },
        }
    }
}

fn one_of(sizes: &[Size]) -> Size {
    let all = sum(sizes);
    let one = sizes.iter().copied().reduce(Size::or).unwrap_or(Size::STORED);
    Size { steps: all.steps, varies: all.varies, ..one }
}

/// Each element of one beside each of the other.
pub(super) fn pairs(left: Size, right: Size) -> u64 {
    left.bytes.saturating_mul(right.bytes)
}

pub(super) fn power(base: Size, exponent: Size) -> u64 {
    match exponent.number {
        Some(exponent) => base.bytes.saturating_mul(exponent.max(1)).min(MAX_DIGITS),
        None if base.varies || exponent.varies => DIGITS_OF_A_POWER,
        None => MAX_DIGITS,
    }
}

/// Numbers of so many digits with each other.
pub(super) fn multiplied(digits: u64) -> u64 {
    digits.saturating_mul(digits) / DIGITS_MULTIPLIED
}

pub(super) fn literal(constant: &Value) -> Size {
    let value = &constant["val"];
    let of = |bytes: u64| Size { is_literal: true, ..Size::constant(bytes) };
    if let Some(number) = value["Ival"]["ival"].as_i64() {
        return Size { number: u64::try_from(number).ok(), bytes: NUMBER, ..of(0) };
    }
    let float = text(&value["Fval"]["fval"]);
    if !float.is_empty() {
        return Size {
            bytes: (float.len() as u64).max(exponents(float)),
            number: float.parse().ok(),
            ..of(0)
        };
    }
    let string = text(&value["Sval"]["sval"]);
    let bytes = string.len() as u64;
    let is_of_numbers = string.trim_start().starts_with(['{', '[', '(', '+', '-', '.'])
        || string.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let bytes = if is_of_numbers { bytes.saturating_add(exponents(string)) } else { bytes };
    let bits = text(&value["Bsval"]["bsval"]).len() as u64 * 4;
    Size { bytes: bytes.max(bits).max(1), ..of(0) }
}

/// The digits that numbers such as 1e131071 have when they are written out.
fn exponents(text: &str) -> u64 {
    let is_of_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
    let words = text.split(|c| !is_of_number(c));
    let exponent = |word: &str| {
        let (number, exponent) = word.split_once(['e', 'E'])?;
        let is_number = number.bytes().any(|b| b.is_ascii_digit())
            && number.bytes().all(|b| b.is_ascii_digit() || b".+-_".contains(&b));
        let exponent: u64 = exponent.trim_start_matches('+').parse().ok()?;
        // What is beyond no number can be.
        is_number.then_some(exponent).filter(|exponent| *exponent <= MAX_DIGITS)
    };
    words.filter_map(exponent).fold(0, u64::saturating_add)
}
