//! How many bytes each payload has.

use std::sync::Arc;

use super::RunError;
use crate::{payload, plan::Size, random::Random};

/// The sizes of one producer's payloads, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Sizes {
    Fixed(usize),
    Uniform { min: usize, max: usize },
    Listed { sizes: Arc<[usize]>, next: usize },
}

impl Sizes {
    /// Reads the file, if sizes come from one.
    pub(super) fn new(size: &Size) -> Result<Self, RunError> {
        match size {
            Size::Fixed(bytes) => Ok(Self::Fixed(*bytes)),
            Size::Uniform { min, max } if min <= max => Ok(Self::Uniform { min: *min, max: *max }),
            Size::Uniform { min, max } => {
                Err(RunError::Unsupported(format!("sizes from {min} to {max} bytes: the first must not be larger")))
            }
            Size::File(path) => {
                let refuse = |why: String| RunError::Unsupported(format!("{}: {why}", path.display()));
                let text = std::fs::read_to_string(path)
                    .map_err(|error| refuse(format!("{error}: name a file with a size in bytes on each line")))?;
                let sizes = parse(&text).map_err(refuse)?;
                Ok(Self::Listed { sizes: sizes.into(), next: 0 })
            }
        }
    }

    /// The next size.
    pub(super) fn next(&mut self, random: &mut Random) -> usize {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform { min, max } => *min + random.below(*max - *min + 1),
            Self::Listed { sizes, next } => {
                let bytes = sizes[*next];
                *next = (*next + 1) % sizes.len();
                bytes
            }
        }
    }
}

fn parse(text: &str) -> Result<Vec<usize>, String> {
    let (least, most) = (payload::BYTES_MIN, payload::BYTES_MAX);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let sizes: Vec<usize> = lines
        .map(|(number, line)| match line.trim().parse() {
            Ok(bytes) if (least..=most).contains(&bytes) => Ok(bytes),
            _ => Err(format!("line {} is {line:?}: write a size from {least} to {most}", number + 1)),
        })
        .collect::<Result<_, _>>()?;
    if sizes.is_empty() { Err("it has no sizes: write one on each line".into()) } else { Ok(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_sizes_is_read_and_goes_round() {
        let mut sizes = Sizes::Listed { sizes: parse("100\n\n 200 \n").unwrap().into(), next: 0 };
        let mut random = Random::new(1, 0);
        assert_eq!([(); 3].map(|()| sizes.next(&mut random)), [100, 200, 100]);
    }

    #[test]
    fn a_line_that_is_no_size_is_named() {
        assert!(parse("100\nx\n").unwrap_err().contains("line 2"));
        assert!(parse("1\n").unwrap_err().contains("line 1"));
        assert!(parse("\n").is_err());
    }

    #[test]
    fn uniform_sizes_reach_both_ends_and_no_further() {
        let (mut sizes, mut random) = (Sizes::Uniform { min: 100, max: 103 }, Random::new(1, 0));
        let drawn: std::collections::BTreeSet<_> = (0..1_000).map(|_| sizes.next(&mut random)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [100, 101, 102, 103]);
    }
}
