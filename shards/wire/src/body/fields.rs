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
pub(super) type Member<T> = Result<Option<T>, BodyError>;

/// A body that has begun as a JSON object.
pub(super) struct Body<'a> {
    scanner: Scanner<'a>,
    depth_max: u32,
}

impl<'a> Body<'a> {
    pub(super) fn open(body: &'a [u8], depth_max: u32) -> Result<Self, BodyError> {
        let mut scanner = Scanner::new(body)?;
        if scanner.peek() != Some(b'{') {
            // It is no JSON, or else no object.
            scanner.value(depth_max)?;
            scanner.end()?;
            return Err(BodyError::NotAnObject);
        }
        Ok(Self { scanner, depth_max })
    }

    /// Walks over the members, up to the end of the body. `member` returns false for a key that
    /// it does not know; its value is then checked and ignored.
    pub(super) fn members(
        mut self,
        mut member: impl FnMut(&mut Scanner<'a>, RawString<'a>) -> Result<bool, JsonError>,
    ) -> Result<(), BodyError> {
        let depth_max = self.depth_max;
        self.scanner.members(|scanner, key| {
            if !member(scanner, key)? {
                scanner.value(depth_max)?;
            }
            Ok(())
        })?;
        Ok(self.scanner.end()?)
    }
}

/// The member's value, or that it is missing.
pub(super) fn required<T>(member: Member<T>, field: &'static str, expected: &'static str) -> Result<T, BodyError> {
    member?.ok_or(BodyError::Missing { field: field.into(), expected })
}

/// Reads a member that is a string.
pub(super) fn string<'a>(
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
pub(super) fn name<'a>(
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
pub(super) fn list<'a>(
    scanner: &mut Scanner<'a>,
    field: &'static str,
    depth_max: u32,
    mut element: impl FnMut(&mut Scanner<'a>, usize) -> Result<Result<(), BodyError>, JsonError>,
) -> Result<Member<usize>, JsonError> {
    if scanner.peek() != Some(b'[') {
        return null_or(scanner, depth_max, || BodyError::Wrong { field: field.into(), expected: "an array" });
    }
    let (mut count, mut faults) = (0, Ok(()));
    scanner.elements(|scanner| {
        if count == ITEMS_MAX {
            faults = Err(BodyError::TooMany { field });
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
pub(super) fn null_or<T>(
    scanner: &mut Scanner<'_>,
    depth_max: u32,
    otherwise: impl FnOnce() -> BodyError,
) -> Result<Member<T>, JsonError> {
    let span = scanner.value(depth_max)?;
    Ok(if scanner.text(span) == "null" { Ok(None) } else { Err(otherwise()) })
}
