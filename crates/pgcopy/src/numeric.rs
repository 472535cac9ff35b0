//! `numeric` between its binary form, digits to the base of 10000, and its text.
//!
//! Binary: count, weight of the first digit, sign, scale (decimal places to show), then the digits.
//! Zeros at either end are left out, so a few bytes can stand for 131072 characters.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};

use crate::Flaw;
use crate::frame::split;

const BASE: u16 = 10_000;
const DIGITS: usize = 4;
const MAX_SCALE: u16 = 0x3fff;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const MINUS_INFINITY: u16 = 0xf000;

const MALFORMED: Flaw = Flaw::Malformed("numeric");

/// Writes a numeric's text and answers its length. A flaw is found before anything is written.
pub(crate) fn write_text(field: &[u8], out: &mut impl Write) -> Result<usize, Flaw> {
    let number = Binary::read(field)?;
    let mut text = Text::new(out);
    match number.sign {
        NAN => text.push(b"NaN"),
        INFINITY => text.push(b"Infinity"),
        MINUS_INFINITY => text.push(b"-Infinity"),
        sign => {
            if sign == NEGATIVE && !number.shows_zero() {
                text.push(b"-");
            }
            number.write_whole(&mut text);
            number.write_fraction(&mut text);
        }
    }
    Ok(text.finish())
}

struct Binary<'a> {
    weight: i16,
    sign: u16,
    scale: u16,
    digits: &'a [[u8; 2]],
}

impl<'a> Binary<'a> {
    fn read(field: &'a [u8]) -> Result<Self, Flaw> {
        let ([count, weight, sign, scale], digits) = header(field).ok_or(MALFORMED)?;
        let (digits, []) = digits.as_chunks() else { return Err(MALFORMED) };
        let known = matches!(sign, POSITIVE | NEGATIVE | NAN | INFINITY | MINUS_INFINITY);
        let digits_hold = digits.iter().all(|digit| u16::from_be_bytes(*digit) < BASE);
        if digits.len() != usize::from(count) || !known || scale > MAX_SCALE || !digits_hold {
            return Err(MALFORMED);
        }
        Ok(Self { weight: weight.cast_signed(), sign, scale, digits })
    }

    /// The digit that counts 10000 to the power of `weight`.
    fn digit(&self, weight: i32) -> u16 {
        usize::try_from(i32::from(self.weight) - weight)
            .ok()
            .and_then(|index| self.digits.get(index))
            .map_or(0, |digit| u16::from_be_bytes(*digit))
    }

    /// No server sends such a negative number; as text it would be a zero with a sign.
    fn shows_zero(&self) -> bool {
        let places = i32::from(self.scale);
        let shown = |weight: i32| {
            let cut = u32::try_from((-weight * DIGITS as i32 - places).clamp(0, DIGITS as i32)).unwrap_or(0);
            self.digit(weight) / 10_u16.pow(cut)
        };
        let last = i32::from(self.weight) - self.digits.len() as i32;
        (last..=i32::from(self.weight)).all(|weight| shown(weight) == 0)
    }

    fn write_whole(&self, text: &mut Text<'_, impl Write>) {
        let mut weight = i32::from(self.weight).max(0);
        while weight > 0 && self.digit(weight) == 0 {
            weight -= 1;
        }
        let first = decimal(self.digit(weight));
        let zeros = first[..DIGITS - 1].iter().take_while(|digit| **digit == b'0').count();
        text.push(&first[zeros..]);
        for weight in (0..weight).rev() {
            text.push(&decimal(self.digit(weight)));
        }
    }

    fn write_fraction(&self, text: &mut Text<'_, impl Write>) {
        if self.scale == 0 {
            return;
        }
        text.push(b".");
        let mut left = usize::from(self.scale);
        let mut weight = -1;
        while left > 0 {
            let shown = left.min(DIGITS);
            text.push(&decimal(self.digit(weight))[..shown]);
            left -= shown;
            weight -= 1;
        }
    }
}

fn header(field: &[u8]) -> Option<([u16; 4], &[u8])> {
    let (head, digits) = split::<8>(field)?;
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    Some(([number(0), number(2), number(4), number(6)], digits))
}

fn decimal(digit: u16) -> [u8; DIGITS] {
    [digit / 1000, digit / 100 % 10, digit / 10 % 10, digit % 10].map(|digit| b'0' + digit as u8)
}

/// Gathers short pieces, so that most numerics are written in one go.
struct Text<'a, W> {
    out: &'a mut W,
    buffer: [u8; 64],
    used: usize,
    flushed: usize,
}

impl<'a, W: Write> Text<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, buffer: [0; 64], used: 0, flushed: 0 }
    }

    fn push(&mut self, piece: &[u8]) {
        if self.used + piece.len() > self.buffer.len() {
            self.flush();
        }
        self.buffer[self.used..][..piece.len()].copy_from_slice(piece);
        self.used += piece.len();
    }

    fn flush(&mut self) {
        let piece = std::str::from_utf8(&self.buffer[..self.used]).expect("digits and letters are ascii");
        self.out.write_str(piece).expect("arrow's builders take every text");
        self.flushed += self.used;
        self.used = 0;
    }

    fn finish(mut self) -> usize {
        self.flush();
        self.flushed
    }
}

/// Appends the field of a numeric, given as Postgres would take it from text, with length.
pub(crate) fn put(text: &str, out: &mut BytesMut) -> Result<(), Flaw> {
    let text = text.trim_ascii().as_bytes();
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let is = |word: &[u8]| unsigned.eq_ignore_ascii_case(word);
    if is(b"nan") && unsigned.len() == text.len() {
        put_header(out, 0, 0, NAN, 0);
    } else if is(b"infinity") || is(b"inf") {
        put_header(out, 0, 0, if negative { MINUS_INFINITY } else { INFINITY }, 0);
    } else {
        Decimal::parse(unsigned)?.put(negative, out)?;
    }
    Ok(())
}

fn put_header(out: &mut BytesMut, count: u16, weight: i16, sign: u16, scale: u16) {
    out.put_i32(8 + 2 * i32::from(count));
    out.put_u16(count);
    out.put_i16(weight);
    out.put_u16(sign);
    out.put_u16(scale);
}

/// The characters of a decimal number, of which the first `point` stand before the point. The point
/// may lie outside of them: 12e-5, 12e5.
struct Decimal<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    point: i64,
    scale: i64,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, Flaw> {
        let (mantissa, exponent) = cut(text, |byte| byte.eq_ignore_ascii_case(&b'e'));
        let (whole, fraction) = cut(mantissa, |byte| *byte == b'.');
        let fraction = fraction.unwrap_or_default();
        let mut digits = whole.iter().chain(fraction);
        if digits.clone().next().is_none() || !digits.all(u8::is_ascii_digit) {
            return Err(Flaw::NotNumeric);
        }
        let exponent = exponent.map_or(Ok(0), exponent_of)?;
        let point = whole.len() as i64 + exponent;
        let scale = (fraction.len() as i64 - exponent).max(0);
        Ok(Self { whole, fraction, point, scale })
    }

    fn put(&self, negative: bool, out: &mut BytesMut) -> Result<(), Flaw> {
        let scale = u16::try_from(self.scale).ok().filter(|scale| *scale <= MAX_SCALE);
        let scale = scale.ok_or(Flaw::NumericRange)?;
        let Some((first, last)) = self.first_and_last() else {
            put_header(out, 0, 0, POSITIVE, scale);
            return Ok(());
        };
        let (highest, lowest) = (self.weight(first), self.weight(last));
        let weight = i16::try_from(highest).map_err(|_| Flaw::NumericRange)?;
        let count = u16::try_from(highest - lowest + 1).map_err(|_| Flaw::NumericRange)?;
        put_header(out, count, weight, if negative { NEGATIVE } else { POSITIVE }, scale);
        for weight in (lowest..=highest).rev() {
            out.put_u16(self.digit(weight));
        }
        Ok(())
    }

    /// Places of the outermost characters that are not zero.
    fn first_and_last(&self) -> Option<(i64, i64)> {
        let mut characters = self.whole.iter().chain(self.fraction);
        let first = characters.position(|character| *character != b'0')?;
        let zeros = self.fraction.iter().rev().chain(self.whole.iter().rev());
        let zeros = zeros.take_while(|character| **character == b'0').count();
        let last = self.whole.len() + self.fraction.len() - zeros - 1;
        Some((first as i64, last as i64))
    }

    /// The weight of the base-10000 digit that the character at `place` falls into.
    fn weight(&self, place: i64) -> i64 {
        (self.point - 1 - place).div_euclid(DIGITS as i64)
    }

    fn digit(&self, weight: i64) -> u16 {
        let from = self.point - (weight + 1) * DIGITS as i64;
        (from..from + DIGITS as i64).fold(0, |digit, place| digit * 10 + self.character(place))
    }

    fn character(&self, place: i64) -> u16 {
        let Ok(place) = usize::try_from(place) else { return 0 };
        let character =
            self.whole.get(place).or_else(|| self.fraction.get(place.wrapping_sub(self.whole.len())));
        character.map_or(0, |character| u16::from(character - b'0'))
    }
}

fn exponent_of(text: &[u8]) -> Result<i64, Flaw> {
    let text = std::str::from_utf8(text).map_err(|_| Flaw::NotNumeric)?;
    let exponent: i32 = text.parse().map_err(|_| Flaw::NotNumeric)?;
    Ok(exponent.into())
}

fn cut(text: &[u8], is_mark: impl Fn(&u8) -> bool) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(is_mark) {
        Some(mark) => (&text[..mark], Some(&text[mark + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Result<Vec<u8>, Flaw> {
        let mut out = BytesMut::new();
        put(text, &mut out).map(|()| out[4..].to_vec())
    }

    fn text(field: &[u8]) -> Result<String, Flaw> {
        let mut out = String::new();
        let length = write_text(field, &mut out)?;
        assert_eq!(length, out.len());
        Ok(out)
    }

    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn digits_are_as_postgres_sends_them() {
        assert_eq!(field("12345.678").unwrap(), words(&[3, 1, POSITIVE, 3, 1, 2345, 6780]));
        assert_eq!(field("-0.0001").unwrap(), words(&[1, u16::MAX, NEGATIVE, 4, 1]));
        assert_eq!(field("50000000").unwrap(), words(&[1, 1, POSITIVE, 0, 5000]));
        assert_eq!(field("0.00").unwrap(), words(&[0, 0, POSITIVE, 2]));
    }

    #[test]
    fn the_text_of_postgres_comes_back_unchanged() {
        let long = format!("{}.{}", "9".repeat(131_072), "1".repeat(16_383));
        let round = format!("1{}", "0".repeat(131_071));
        let tiny = format!("-0.{}1", "0".repeat(16_382));
        let plain = ["0", "0.0", "0.00", "1", "1.0", "1.00", "-1.50", "10000", "9999.9999", "0.00001"];
        let special = ["NaN", "Infinity", "-Infinity", "100000000.000000001"];
        for known in plain.iter().chain(&special).copied().chain([&*long, &*round, &*tiny]) {
            assert_eq!(text(&field(known).unwrap()).unwrap(), known);
        }
    }

    #[test]
    fn other_ways_to_write_a_number_mean_what_they_mean_to_postgres() {
        for (written, canonical) in [
            (" 1 ", "1"),
            ("+5.", "5"),
            (".5", "0.5"),
            ("-0", "0"),
            ("007.10", "7.10"),
            ("1E+5", "100000"),
            ("1.23e1", "12.3"),
            ("12e-5", "0.00012"),
            ("0e9", "0"),
            ("nan", "NaN"),
            ("+inf", "Infinity"),
            ("-INFINITY", "-Infinity"),
        ] {
            assert_eq!(text(&field(written).unwrap()).unwrap(), canonical, "{written:?}");
        }
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for written in
            ["", " ", "-", ".", "e5", ".e5", "1e", "1e5.0", "1,5", "1.2.3", "--1", "-nan", "0x1f", "١"]
        {
            assert_eq!(field(written), Err(Flaw::NotNumeric), "{written:?}");
        }
    }

    #[test]
    fn a_number_beyond_postgres_is_refused() {
        for written in ["1e131072", "1e-16384", "1e2147483647", &format!("0.{}", "0".repeat(16_384))] {
            assert_eq!(field(written), Err(Flaw::NumericRange));
        }
    }

    #[test]
    fn bytes_that_are_no_numeric_are_refused() {
        let short_header = words(&[0, 0, 0]);
        let too_few = words(&[2, 0, POSITIVE, 0, 1]);
        let half_a_digit = [words(&[1, 0, POSITIVE, 0]), vec![1]].concat();
        let not_a_digit = words(&[1, 0, POSITIVE, 0, BASE]);
        let other_sign = words(&[0, 0, 0x1234, 0]);
        let too_much_scale = words(&[0, 0, POSITIVE, MAX_SCALE + 1]);
        for field in [short_header, too_few, half_a_digit, not_a_digit, other_sign, too_much_scale] {
            assert_eq!(text(&field), Err(MALFORMED));
        }
    }
}
