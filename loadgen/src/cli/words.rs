//! The words of a plan: how each is written, on the command line and in TOML files alike.

use std::{collections::BTreeSet, fmt::Display, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::plan::{Arrivals, DriverKind, Scenario, Size, Spread, Style};

/// A text that does not say what it should. It reads as the end of a sentence that has named the flag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WordError(String);

/// One of a few things, each with a word for it.
pub trait Word: Copy + PartialEq + 'static {
    /// What it is one of.
    const KIND: &'static str;
    /// Every one with its word.
    const WORDS: &'static [(&'static str, Self)];

    /// The word for it.
    fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(_, one)| *one == self);
        known.expect("every one has a word").0
    }

    /// What a word means.
    ///
    /// # Errors
    ///
    /// Lists the words.
    fn of(text: &str) -> Result<Self, WordError> {
        let known = Self::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, one)| *one).ok_or_else(|| {
            let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
            WordError(format!("there is no {} `{text}`; it is one of {}", Self::KIND, words.join(", ")))
        })
    }
}

impl Word for Scenario {
    const KIND: &'static str = "scenario";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("push", Self::Push),
        ("pop", Self::Pop),
        ("push-pop", Self::PushPop),
        ("request-reply", Self::RequestReply),
        ("fan-out", Self::FanOut),
        ("parked", Self::Parked),
        ("churn", Self::Churn),
        ("mixed", Self::Mixed),
        ("durable-push", Self::DurablePush),
        ("durable-pop", Self::DurablePop),
        ("durable-pipe", Self::DurablePipe),
    ];
}

impl Word for DriverKind {
    const KIND: &'static str = "driver";
    const WORDS: &'static [(&'static str, Self)] =
        &[("queen", Self::Queen), ("durable", Self::Durable), ("nats", Self::Nats), ("redis", Self::Redis)];
}

impl Word for Arrivals {
    const KIND: &'static str = "kind of arrivals";
    const WORDS: &'static [(&'static str, Self)] = &[("constant", Self::Constant), ("poisson", Self::Poisson)];
}

impl Word for Style {
    const KIND: &'static str = "style";
    const WORDS: &'static [(&'static str, Self)] = &[("push-pop", Self::PushPop), ("verbs", Self::Verbs)];
}

/// What a run is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// No message is lost.
    Lost,
    /// No message comes again.
    Duplicated,
    /// Messages of a partition come in order.
    Reordered,
    /// Messages come with the bytes that were sent.
    Corrupted,
    /// No request fails.
    Errors,
}

impl Word for Check {
    const KIND: &'static str = "check";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("lost", Self::Lost),
        ("duplicated", Self::Duplicated),
        ("reordered", Self::Reordered),
        ("corrupted", Self::Corrupted),
        ("errors", Self::Errors),
    ];
}

/// Checks that may fail without failing the run: `lost,errors`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(BTreeSet<Check>);

impl Allowed {
    /// Whether `check` may fail.
    pub fn contains(&self, check: Check) -> bool {
        self.0.contains(&check)
    }
}

/// A part of a whole: a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// Messages a second: a number above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

macro_rules! from_str_by_word {
    ($($word:ty),*) => {$(
        impl FromStr for $word {
            type Err = WordError;

            fn from_str(text: &str) -> Result<Self, WordError> {
                Self::of(text)
            }
        }
    )*};
}

from_str_by_word!(Scenario, DriverKind, Arrivals, Style, Check);

impl FromStr for Allowed {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        text.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Rate {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        rate.map(Self).ok_or_else(|| WordError("a rate is a number above zero, in messages per second".into()))
    }
}

impl FromStr for Share {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| WordError("a share is a number from 0 to 1".into()))
    }
}

impl FromStr for Spread {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let exponent = match text {
            "uniform" => return Ok(Self::Uniform),
            "turns" => return Ok(Self::Turns),
            "zipf" => Some(1.0),
            _ => text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok()),
        };
        exponent.filter(|exponent: &f64| exponent.is_finite() && *exponent > 0.0).map(Self::Zipf).ok_or_else(|| {
            WordError("a spread is uniform, turns, zipf, or zipf:EXPONENT with an exponent above zero".into())
        })
    }
}

impl FromStr for Size {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let wrong = || WordError("a size is a number of bytes, a range of them as 64-1024, or @FILE".into());
        if let Some(path) = text.strip_prefix('@') {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::File(PathBuf::from(path))) };
        }
        let bytes = |digits: &str| digits.parse().map_err(|_| wrong());
        match text.split_once('-') {
            None => bytes(text).map(Self::Fixed),
            Some((min, max)) => match (bytes(min)?, bytes(max)?) {
                (min, max) if min <= max => Ok(Self::Uniform { min, max }),
                _ => Err(WordError(format!("the range {text} runs backwards"))),
            },
        }
    }
}

/// Reads a value of a TOML file as the flag of its name is read: text, or a bare number or truth value.
pub fn as_flag<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected text or a number")]
    enum Value {
        Text(String),
        Integer(i64),
        Float(f64),
        Truth(bool),
    }
    let text = match Value::deserialize(deserializer)? {
        Value::Text(text) => text,
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Truth(truth) => truth.to_string(),
    };
    text.parse().map(Some).map_err(|error| D::Error::custom(format!("`{text}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_one_thing() {
        for (word, scenario) in Scenario::WORDS {
            assert_eq!(word.parse(), Ok(*scenario));
            assert_eq!(scenario.word(), *word);
        }
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let error = "redys".parse::<DriverKind>().unwrap_err().to_string();
        assert_eq!(error, "there is no driver `redys`; it is one of queen, durable, nats, redis");
    }

    #[test]
    fn a_size_is_bytes_a_range_or_a_file() {
        assert_eq!("256".parse(), Ok(Size::Fixed(256)));
        assert_eq!("64-1024".parse(), Ok(Size::Uniform { min: 64, max: 1024 }));
        assert_eq!("@sizes.txt".parse(), Ok(Size::File("sizes.txt".into())));
        for wrong in ["", "@", "-1", "64-", "1024-64", "1k"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_spread_has_an_exponent_above_zero() {
        assert_eq!("uniform".parse(), Ok(Spread::Uniform));
        assert_eq!("turns".parse(), Ok(Spread::Turns));
        assert_eq!("zipf".parse(), Ok(Spread::Zipf(1.0)));
        assert_eq!("zipf:1.2".parse(), Ok(Spread::Zipf(1.2)));
        for wrong in ["", "zipf:", "zipf:0", "zipf:-1", "zipf:inf", "zipf:NaN", "pareto"] {
            assert!(wrong.parse::<Spread>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rate_is_above_zero() {
        assert_eq!("0.5".parse(), Ok(Rate(0.5)));
        for wrong in ["", "0", "-1", "inf", "NaN", "fast"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_a_part_of_a_whole() {
        for (text, share) in [("0", 0.0), ("0.25", 0.25), ("1", 1.0)] {
            assert_eq!(text.parse(), Ok(Share(share)));
        }
        for wrong in ["", "-0.1", "1.1", "NaN", "half"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_allowed_is_a_list_of_checks() {
        let allowed: Allowed = "lost, errors".parse().unwrap();
        assert!(allowed.contains(Check::Lost) && allowed.contains(Check::Errors));
        assert!(!allowed.contains(Check::Duplicated));
        assert!("lost,".parse::<Allowed>().is_err());
    }
}
