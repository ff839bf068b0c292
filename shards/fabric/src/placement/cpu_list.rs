//! Lists of CPUs as the kernel and our settings write them: `0-3,6`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A set of CPU numbers, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

/// Why a text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// There is no CPU in it.
    #[error("no CPU is named; a list looks like 0-3,6")]
    Empty,
    /// A part is neither a number nor a range.
    #[error("{part:?} is neither a CPU's number nor a range; a list looks like 0-3,6")]
    NotANumber {
        /// The part.
        part: String,
    },
    /// A range ends before it starts.
    #[error("the range {part:?} runs backwards")]
    Backwards {
        /// The range.
        part: String,
    },
    /// A number beyond any machine's.
    #[error("CPU {cpu} is beyond {max}, the highest number that a list may hold")]
    TooHigh {
        /// The number.
        cpu: usize,
        /// The highest allowed.
        max: usize,
    },
    /// A CPU is named twice.
    #[error("CPU {cpu} is named twice")]
    Duplicate {
        /// The CPU.
        cpu: usize,
    },
}

impl CpuList {
    /// The highest CPU number in a list: the kernel's own bound (`CONFIG_NR_CPUS` is 8192 at most).
    pub const CPU_MAX: usize = 8191;

    /// Reads a list such as `0-3,6`.
    ///
    /// # Errors
    ///
    /// [`CpuListError`], naming the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        if text.trim().is_empty() {
            return Err(CpuListError::Empty);
        }
        let mut cpus = BTreeSet::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first, part)?, number(last, part)?);
            if last < first {
                return Err(CpuListError::Backwards { part: part.to_owned() });
            }
            if last > Self::CPU_MAX {
                return Err(CpuListError::TooHigh { cpu: last, max: Self::CPU_MAX });
            }
            for cpu in first..=last {
                if !cpus.insert(cpu) {
                    return Err(CpuListError::Duplicate { cpu });
                }
            }
        }
        Ok(Self(cpus))
    }

    /// A list of these CPUs, or none if there are none.
    pub fn from_cpus(cpus: impl IntoIterator<Item = usize>) -> Option<Self> {
        let cpus: BTreeSet<usize> = cpus.into_iter().collect();
        (!cpus.is_empty()).then_some(Self(cpus))
    }

    /// Whether `cpu` is in it.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// Number of CPUs, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn number(digits: &str, part: &str) -> Result<usize, CpuListError> {
    // parse() alone would let a sign through.
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = all_digits.then(|| digits.parse().ok()).flatten();
    parsed.ok_or_else(|| CpuListError::NotANumber { part: part.to_owned() })
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        Self::parse(text)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Vec<usize> {
        CpuList::parse(text).unwrap().iter().collect()
    }

    #[test]
    fn a_list_is_numbers_and_ranges() {
        assert_eq!(cpus("0"), [0]);
        assert_eq!(cpus("0-3,6"), [0, 1, 2, 3, 6]);
        assert_eq!(cpus(" 6 , 0-1 "), [0, 1, 6]);
        assert_eq!(cpus("5-5"), [5]);
    }

    #[test]
    fn a_list_is_written_as_it_is_read() {
        for text in ["0", "0-3,6", "1,3,5", "0-1,4-7,9"] {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_list_says_what_is_wrong() {
        let not_a_number = |part: &str| CpuListError::NotANumber { part: part.to_owned() };
        assert_eq!(CpuList::parse("  "), Err(CpuListError::Empty));
        assert_eq!(CpuList::parse("0,,1"), Err(not_a_number("")));
        assert_eq!(CpuList::parse("0,x"), Err(not_a_number("x")));
        assert_eq!(CpuList::parse("+1"), Err(not_a_number("+1")));
        assert_eq!(CpuList::parse("-1"), Err(not_a_number("-1")));
        assert_eq!(CpuList::parse("1-2-3"), Err(not_a_number("1-2-3")));
        assert_eq!(CpuList::parse("3-1"), Err(CpuListError::Backwards { part: "3-1".to_owned() }));
        assert_eq!(CpuList::parse("0-2,2"), Err(CpuListError::Duplicate { cpu: 2 }));
        assert_eq!(CpuList::parse("0-99999999999"), Err(CpuListError::TooHigh { cpu: 99_999_999_999, max: 8191 }));
        assert_eq!(CpuList::parse("99999999999999999999999"), Err(not_a_number("99999999999999999999999")));
    }
}
