//! What is wrong with a body or a query, in words for the client who sent it.

use std::borrow::Cow;

use crate::json::JsonError;
use crate::name::NameError;
use crate::target::TargetError;

/// Why a body or a query is not taken. Answered with status 400, [`BodyError::code`], and the
/// `Display` sentence, which names the field and says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The text is no JSON.
    #[error("the body is not valid JSON: {0}")]
    Json(#[from] JsonError),
    /// A JSON text that is no object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// A field that must be there is absent or null.
    #[error("`{field}` is missing: it must be {expected}")]
    Missing {
        /// The field's name or path.
        field: Cow<'static, str>,
        /// What it must be.
        expected: &'static str,
    },
    /// A field or parameter has a value that it cannot have.
    #[error("`{field}` must be {expected}")]
    Wrong {
        /// The field's name or path.
        field: Cow<'static, str>,
        /// What it must be.
        expected: &'static str,
    },
    /// A text that is no name.
    #[error("`{field}` {fault}")]
    Name {
        /// The field's name.
        field: &'static str,
        /// The rule that it breaks.
        fault: NameError,
    },
    /// A fault inside one part of a body.
    #[error("in `{part}`: {fault}")]
    In {
        /// The part's name, with its index where there are several.
        part: Cow<'static, str>,
        /// What is wrong in it.
        fault: Box<BodyError>,
    },
    /// More messages or acks than one call takes.
    #[error("`{field}` has more than {max} elements")]
    TooMany {
        /// The array's name.
        field: &'static str,
        /// What the call takes.
        max: usize,
    },
    /// An option that a closed list does not have.
    #[error("unknown option `{name}`: the options are {known}")]
    UnknownOption {
        /// The option as it was sent.
        name: String,
        /// Those that exist.
        known: &'static str,
    },
    /// A query parameter given twice.
    #[error("the query parameter `{parameter}` is given more than once")]
    Repeated {
        /// The parameter's name.
        parameter: &'static str,
    },
    /// A query parameter whose percent-encoding cannot be read.
    #[error("the query parameter `{parameter}` {fault}")]
    Encoding {
        /// The parameter's name, as it was sent.
        parameter: String,
        /// What is wrong with it.
        fault: TargetError,
    },
}

impl BodyError {
    /// The word for programs, the answer's `code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "bad_request",
            Self::In { fault, .. } => fault.code(),
            _ => "ephemeral_bad_request",
        }
    }

    /// The same fault, found inside a part.
    pub(crate) fn of_part(self, part: Cow<'static, str>) -> Self {
        Self::In { part, fault: Box::new(self) }
    }
}
