//! What the bodies share: walking over the members of the one object, and reading a member that
//! is a name, a text or a list.
//!
//! A member's reader returns two results in one another. The outer one is about JSON and ends the
//! walk. The inner one is about this body and is kept: a later duplicate of the member may put it
//! right, a fault of JSON behind it counts before it.

use std::borrow::Cow;

use super::{BodyError, ITEMS_MAX};
use crate::json::{JsonError, RawString, Scanner};
use crate::name::{self, NameError};

/// A member as far as it was read: `None` if absent or null.
pub(crate) type Member<T> = Result<Option<T>, BodyError>;

/// Reads a body that is one JSON object. `object` is called where it begins, and steps over it.
pub(crate) fn body<'a, T>(
    body: &'a [u8],
    depth_max: u32,
    object: impl FnOnce(&mut Scanner<'a>) -> Result<Result<T, BodyError>, JsonError>,
) -> Result<T, BodyError> {
    let mut scanner = Scanner::new(body)?;
    let read = if scanner.peek() == Some(b'{') {
        object(&mut scanner)?
    } else {
        // It is no JSON, or else no object.
        scanner.value(depth_max)?;
        Err(BodyError::NotAnObject)
    };
    scanner.end()?;
    read
}

/// Walks over the members of the object that begins here. `member` returns false for a key that
/// it does not know; its value is then checked and ignored.
pub(crate) fn members<'a>(
    scanner: &mut Scanner<'a>,
    depth_max: u32,
    mut member: impl FnMut(&mut Scanner<'a>, RawString<'a>) -> Result<bool, JsonError>,
) -> Result<(), JsonError> {
    scanner.members(|scanner, key| {
        if !member(scanner, key)? {
            scanner.value(depth_max)?;
        }
        Ok(())
    })
}

/// Reads a member that is an object of its own, a part of the body. A fault in it names the part.
pub(crate) fn part<'a, T>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
    object: impl FnOnce(&mut Scanner<'a>) -> Result<Result<T, BodyError>, JsonError>,
) -> Result<Member<T>, JsonError> {
    if scanner.peek() != Some(b'{') {
        return null_or(scanner, depth_max, || BodyError::Wrong { field: field.into(), expected: "an object" });
    }
    Ok(object(scanner)?.map(Some).map_err(|fault| fault.of_part(field.into())))
}

/// Reads a member that is true or false.
pub(crate) fn boolean(
    scanner: &mut Scanner<'_>,
    field: &'static str,
    depth_max: u32,
) -> Result<Member<bool>, JsonError> {
    let span = scanner.value(depth_max)?;
    Ok(match scanner.text(span) {
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        "null" => Ok(None),
        _ => Err(BodyError::Wrong { field: field.into(), expected: "true or false" }),
    })
}

/// Reads a member that is an integer from `least` on.
pub(crate) fn integer(
    scanner: &mut Scanner<'_>,
    field: &'static str,
    depth_max: u32,
    least: Least,
) -> Result<Member<u64>, JsonError> {
    let span = scanner.value(depth_max)?;
    let text = scanner.text(span);
    if text == "null" {
        return Ok(Ok(None));
    }
    // A sign or a point, even of a number that is whole, is refused, as in a query.
    Ok(match text.parse() {
        Ok(value) if value >= least as u64 => Ok(Some(value)),
        _ => Err(BodyError::Wrong { field: field.into(), expected: least.expected() }),
    })
}

/// The smallest value of an integer.
#[derive(Clone, Copy)]
pub(crate) enum Least {
    Zero,
    One,
}

impl Least {
    fn expected(self) -> &'static str {
        match self {
            Self::Zero => "a non-negative integer of at most 64 bits",
            Self::One => "an integer from 1 on, of at most 64 bits",
        }
    }
}

/// The member's value, or that it is missing.
pub(crate) fn required<T>(member: Member<T>, field: &'static str, expected: &'static str) -> Result<T, BodyError> {
    member?.ok_or(BodyError::Missing { field: field.into(), expected })
}

/// Reads a member that is a string.
pub(crate) fn string<'a>(
    scanner: &mut Scanner<'a>,
    field: impl FnOnce() -> Cow<'static, str>,
    depth_max: u32,
) -> Result<Member<RawString<'a>>, JsonError> {
    if scanner.peek() == Some(b'"') {
        return Ok(Ok(Some(scanner.string()?)));
    }
    null_or(scanner, depth_max, || BodyError::Wrong { field: field(), expected: "a string" })
}

/// Reads a member that is the name of a queue, partition or group.
pub(crate) fn name<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
) -> Result<Member<Cow<'a, str>>, JsonError> {
    Ok(string(scanner, || field.into(), depth_max)?.and_then(|raw| {
        let Some(raw) = raw else { return Ok(None) };
        let lone = |_| BodyError::Name { field, fault: NameError::LoneSurrogate };
        let name = raw.decode().map_err(lone)?;
        name::check(field, &name)?;
        Ok(Some(name))
    }))
}

/// Reads a member that is a list of at most [`ITEMS_MAX`] objects and returns how many it has.
/// `element` is called with the index of each and must step over it.
pub(crate) fn list<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
    element: impl FnMut(&mut Scanner<'a>, usize) -> Result<Result<(), BodyError>, JsonError>,
) -> Result<Member<usize>, JsonError> {
    list_of(scanner, field, depth_max, ITEMS_MAX, element)
}

/// Reads a member that is a list of at most `max` objects, as [`list`] does.
pub(crate) fn list_of<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
    max: usize,
    mut element: impl FnMut(&mut Scanner<'a>, usize) -> Result<Result<(), BodyError>, JsonError>,
) -> Result<Member<usize>, JsonError> {
    if scanner.peek() != Some(b'[') {
        return null_or(scanner, depth_max, || BodyError::Wrong { field: field.into(), expected: "an array" });
    }
    let (mut count, mut faults) = (0, Ok(()));
    scanner.elements(|scanner| {
        if count == max {
            faults = Err(BodyError::TooMany { field, max });
            return scanner.value(depth_max).map(drop);
        }
        let index = count;
        count += 1;
        if scanner.peek() == Some(b'{') {
            let judged = element(scanner, index)?;
            faults = std::mem::replace(&mut faults, Ok(())).and(judged);
        } else {
            scanner.value(depth_max)?;
            let judged = Err(BodyError::Wrong { field: format!("{field}[{index}]").into(), expected: "an object" });
            faults = std::mem::replace(&mut faults, Ok(())).and(judged);
        }
        Ok(())
    })?;
    Ok(faults.map(|()| Some(count)))
}

/// Steps over a value that is none of what a member may be, other than null.
pub(crate) fn null_or<T>(
    scanner: &mut Scanner<'_>,
    depth_max: u32,
    otherwise: impl FnOnce() -> BodyError,
) -> Result<Member<T>, JsonError> {
    let span = scanner.value(depth_max)?;
    Ok(if scanner.text(span) == "null" { Ok(None) } else { Err(otherwise()) })
}
