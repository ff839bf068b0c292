//! One walk over a JSON text: spaces, strings, numbers, whole values; members and elements for
//! whoever looks inside. Moves forward only and changes nothing.

use std::borrow::Cow;
use std::ops::Range;

use super::nesting::{Container, Nesting};
use super::{JsonError, JsonErrorKind};
use crate::scan::plain_prefix_bytes;

/// A place in a JSON text.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Stands before the first byte of `text`, all of which is checked to be UTF-8.
    pub(crate) fn new(text: &'a [u8]) -> Result<Self, JsonError> {
        if u32::try_from(text.len()).is_err() {
            return Err(JsonError { offset: u32::MAX as usize, kind: JsonErrorKind::TooLong });
        }
        match std::str::from_utf8(text) {
            Ok(text) => Ok(Self { text, at: 0 }),
            Err(error) => Err(JsonError { offset: error.valid_up_to(), kind: JsonErrorKind::Utf8 }),
        }
    }

    /// The text of a span that this scanner returned.
    pub(crate) fn text(&self, span: Range<usize>) -> &'a str {
        &self.text[span]
    }

    /// The offset in the text of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The first byte of the next value; `None` at the end of the text. Skips white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    /// Steps over one whole value of any kind and returns its place, without surrounding space.
    pub(crate) fn value(&mut self, depth_max: u32) -> Result<Range<usize>, JsonError> {
        self.skip_space();
        let start = self.at;
        let mut nesting = Nesting::default();
        loop {
            match self.byte() {
                Some(b'{') => {
                    self.open(&mut nesting, Container::Object, depth_max)?;
                    if self.peek() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.open(&mut nesting, Container::Array, depth_max)?;
                    if self.peek() != Some(b']') {
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            if self.close(&mut nesting)? {
                return Ok(start..self.at);
            }
        }
    }

    /// Steps over a string, which must come next, as `peek` has shown.
    pub(crate) fn string(&mut self) -> Result<RawString<'a>, JsonError> {
        debug_assert_eq!(self.byte(), Some(b'"'));
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_prefix_bytes(&self.text.as_bytes()[self.at..]);
            match self.byte() {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(RawString { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.error(JsonErrorKind::Control)),
                None => return Err(self.error(JsonErrorKind::UnexpectedEnd)),
            }
        }
    }

    /// Walks over an object, which must come next. `member` is called behind each key and its
    /// colon and must step over the value.
    pub(crate) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, RawString<'a>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        debug_assert_eq!(self.byte(), Some(b'{'));
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// Walks over an array, which must come next. `element` is called at each element and must
    /// step over it.
    pub(crate) fn elements(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        debug_assert_eq!(self.byte(), Some(b'['));
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// Refuses anything but white space up to the end of the text.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonErrorKind::Trailing)),
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn error(&self, kind: JsonErrorKind) -> JsonError {
        JsonError { offset: self.at, kind }
    }

    /// `kind`, unless the text has simply run out.
    fn unexpected(&self, kind: JsonErrorKind) -> JsonError {
        self.error(if self.byte().is_none() { JsonErrorKind::UnexpectedEnd } else { kind })
    }

    /// Steps over an opening bracket.
    fn open(&mut self, nesting: &mut Nesting, container: Container, depth_max: u32) -> Result<(), JsonError> {
        if nesting.depth() >= depth_max {
            return Err(self.error(JsonErrorKind::TooDeep));
        }
        nesting.push(container);
        self.at += 1;
        Ok(())
    }

    /// Behind a value: closes what ends here. True if nothing is open any more; otherwise the next
    /// value comes, its key and colon behind it.
    fn close(&mut self, nesting: &mut Nesting) -> Result<bool, JsonError> {
        while let Some(container) = nesting.innermost() {
            let bracket = if container == Container::Object { b'}' } else { b']' };
            if self.goes_on(bracket)? {
                if container == Container::Object {
                    self.key()?;
                }
                return Ok(false);
            }
            nesting.pop();
        }
        Ok(true)
    }

    /// Steps over a comma (true) or `bracket` (false).
    fn goes_on(&mut self, bracket: u8) -> Result<bool, JsonError> {
        let more = match self.peek() {
            Some(b',') => true,
            Some(byte) if byte == bracket => false,
            _ => return Err(self.unexpected(JsonErrorKind::ExpectedCommaOrEnd)),
        };
        self.at += 1;
        if more {
            self.skip_space();
        }
        Ok(more)
    }

    /// Steps over a key, its colon, and the space behind it.
    fn key(&mut self) -> Result<RawString<'a>, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(JsonErrorKind::ExpectedKey));
        }
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.unexpected(JsonErrorKind::ExpectedColon));
        }
        self.at += 1;
        self.skip_space();
        Ok(key)
    }

    fn scalar(&mut self) -> Result<(), JsonError> {
        match self.byte() {
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected(JsonErrorKind::ExpectedValue)),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), JsonError> {
        for byte in word.bytes() {
            if self.byte() != Some(byte) {
                return Err(self.unexpected(JsonErrorKind::ExpectedValue));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
            if self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.error(JsonErrorKind::Number));
            }
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Steps over one digit and all that follow.
    fn digits(&mut self) -> Result<(), JsonError> {
        if !self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected(JsonErrorKind::Number));
        }
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    /// Steps over a backslash and what it escapes.
    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.unexpected(JsonErrorKind::Escape));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.unexpected(JsonErrorKind::Escape)),
        }
        Ok(())
    }
}

/// A string as it stands between its quotes, known to be well formed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawString<'a> {
    raw: &'a str,
    escaped: bool,
}

/// Half of a surrogate pair, written as an escape: JSON text, but no character.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoneSurrogate;

impl<'a> RawString<'a> {
    /// The text that the string stands for; borrowed where no escape changes it.
    pub(crate) fn decode(self) -> Result<Cow<'a, str>, LoneSurrogate> {
        if self.escaped { unescape(self.raw, None).map(Cow::Owned) } else { Ok(Cow::Borrowed(self.raw)) }
    }

    /// The text that the string stands for, with U+FFFD for half of a surrogate pair.
    pub(crate) fn decode_lossy(self) -> Cow<'a, str> {
        self.decode().unwrap_or_else(|LoneSurrogate| {
            Cow::Owned(unescape(self.raw, Some(char::REPLACEMENT_CHARACTER)).unwrap_or_default())
        })
    }

    /// The string as it was sent, escapes and all, for messages about it.
    pub(crate) fn as_sent(self) -> &'a str {
        self.raw
    }

    /// True if the string stands for `text`.
    pub(crate) fn is(self, text: &str) -> bool {
        if self.escaped { self.decode().is_ok_and(|own| own == text) } else { self.raw == text }
    }
}

/// Half of a surrogate pair becomes `instead`, or is an error where that is not given.
fn unescape(raw: &str, instead: Option<char>) -> Result<String, LoneSurrogate> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        // A well-formed string has an ASCII character behind each backslash.
        let (letter, behind) = escape.split_at(1);
        rest = behind;
        text.push(match letter {
            "b" => '\u{8}',
            "f" => '\u{c}',
            "n" => '\n',
            "r" => '\r',
            "t" => '\t',
            "u" => {
                let (character, behind) = match (unicode_escape(rest), instead) {
                    (Ok(read), _) => read,
                    (Err(LoneSurrogate), Some(instead)) => (instead, &rest[HEX_DIGITS..]),
                    (Err(LoneSurrogate), None) => return Err(LoneSurrogate),
                };
                rest = behind;
                character
            }
            itself => {
                text.push_str(itself);
                continue;
            }
        });
    }
    text.push_str(rest);
    Ok(text)
}

/// The character whose escape goes on with `rest`, behind its `\u`, and what follows it.
fn unicode_escape(rest: &str) -> Result<(char, &str), LoneSurrogate> {
    let (high, rest) = code_unit(rest).ok_or(LoneSurrogate)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, rest));
    }
    let (low, rest) = rest.strip_prefix("\\u").and_then(code_unit).ok_or(LoneSurrogate)?;
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(LoneSurrogate);
    }
    let code_point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code_point).map(|character| (character, rest)).ok_or(LoneSurrogate)
}

/// The digits of a unicode escape.
const HEX_DIGITS: usize = 4;

/// Four hexadecimal digits: a unit of UTF-16.
fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(HEX_DIGITS)?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::{LoneSurrogate, Scanner};

    fn decoded(text: &str) -> Result<String, LoneSurrogate> {
        let mut scanner = Scanner::new(text.as_bytes()).expect("UTF-8");
        scanner.string().expect("well formed").decode().map(Into::into)
    }

    #[test]
    fn escapes_stand_for_their_characters() {
        for (text, expected) in [
            (r#""plain é""#, "plain é"),
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u0041\u00e9\u20AC""#, "Aé€"),
            (r#""a\ud83d\ude00b""#, "a\u{1f600}b"),
            (r#""\\u0041""#, "\\u0041"),
            (r#""é\u0000""#, "é\0"),
        ] {
            assert_eq!(decoded(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn half_of_a_pair_is_no_character() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\ud800\u0041""#,
            r#""\ud800\ud800""#,
            r#""\udc00\ud800""#,
        ] {
            assert_eq!(decoded(text), Err(LoneSurrogate), "{text}");
        }
    }

    #[test]
    fn half_of_a_pair_can_be_replaced() {
        for (text, expected) in [
            (r#""a\\ud800\ud83d\ude00\udc00b""#, "a\\ud800\u{1f600}\u{fffd}b"),
            (r#""\ud800\u0041\ud800""#, "\u{fffd}A\u{fffd}"),
            (r#""plain""#, "plain"),
        ] {
            let mut scanner = Scanner::new(text.as_bytes()).expect("UTF-8");
            assert_eq!(scanner.string().expect("well formed").decode_lossy(), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_cut_without_the_space_around_it() {
        let text = b" \t{\"a\" : [1, 2]} , 3";
        let mut scanner = Scanner::new(text).expect("UTF-8");
        let span = scanner.value(8).expect("a value");
        assert_eq!(scanner.text(span), "{\"a\" : [1, 2]}");
    }
}
