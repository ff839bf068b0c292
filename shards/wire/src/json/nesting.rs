//! Which brackets are open: a bit per level, in a register as long as they are fewer than 64.

/// What an open bracket opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

/// The open brackets, the innermost on top.
#[derive(Default)]
pub(super) struct Nesting {
    depth: u32,
    /// The innermost levels since the last multiple of 64, bit 0 innermost; 1 is an object.
    top: u64,
    /// The full words below. Empty, and so without memory, up to 64 levels.
    below: Vec<u64>,
}

impl Nesting {
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn push(&mut self, container: Container) {
        if self.depth > 0 && self.depth.is_multiple_of(u64::BITS) {
            self.below.push(self.top);
        }
        self.top = (self.top << 1) | u64::from(container == Container::Object);
        self.depth += 1;
    }

    pub(super) fn pop(&mut self) {
        debug_assert!(self.depth > 0, "a bracket was closed that nobody opened");
        self.depth -= 1;
        self.top = match self.depth {
            depth if depth.is_multiple_of(u64::BITS) => self.below.pop().unwrap_or(0),
            _ => self.top >> 1,
        };
    }

    /// The innermost open bracket, if any is open.
    pub(super) fn innermost(&self) -> Option<Container> {
        (self.depth > 0).then_some(if self.top & 1 == 1 { Container::Object } else { Container::Array })
    }
}
