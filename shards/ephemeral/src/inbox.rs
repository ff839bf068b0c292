//! The names of one-time inboxes, to which the reply to a request is pushed.
//!
//! Every name under [`PREFIX`] is an inbox and no queue. A name that the broker minted says where its inbox is:
//! `_inbox.<16 hex digits of the owner's boot epoch>.<shard>.<index>.<serial>`. Any other one was chosen by the
//! requester, and its inbox is where the hash of the name leads, as for a queue. Parsing accepts exactly what formatting
//! makes.

use std::fmt;

use crate::id::{append_decimal, append_hex, parse_decimal, parse_hex};

/// How the names of inboxes begin, and no queue's.
pub const PREFIX: &str = "_inbox.";

/// Whether a name is an inbox's.
pub fn is_inbox(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// One inbox of an engine. Never used again within an epoch.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct InboxId {
    /// Its place, which others had before and will have again.
    pub index: u32,
    /// Its number in the order in which the engine opened them.
    pub serial: u64,
}

/// An inbox with a name of the broker's own.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Minted {
    /// The boot epoch of the node that has it.
    pub epoch: u64,
    /// The data shard of that node.
    pub shard: u16,
    /// The inbox there.
    pub inbox: InboxId,
}

impl Minted {
    /// Reads a name. `None` for whatever formatting would not have written.
    pub fn parse(name: &str) -> Option<Self> {
        let (epoch, rest) = name.strip_prefix(PREFIX)?.split_at_checked(16)?;
        let mut numbers = rest.strip_prefix('.')?.split('.').map(parse_decimal);
        let (shard, index, serial) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if numbers.next().is_some() {
            return None;
        }
        let inbox = InboxId { index: u32::try_from(index).ok()?, serial };
        Some(Self { epoch: parse_hex(epoch)?, shard: u16::try_from(shard).ok()?, inbox })
    }

    /// Appends the name, allocating nothing but the buffer's own growth.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFIX.as_bytes());
        append_hex(self.epoch, out);
        for number in [u64::from(self.shard), u64::from(self.inbox.index), self.inbox.serial] {
            out.push(b'.');
            append_decimal(number, out);
        }
    }
}

impl fmt::Display for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InboxId { index, serial } = self.inbox;
        write!(f, "{PREFIX}{:016x}.{}.{index}.{serial}", self.epoch, self.shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_name_reads_back_as_it_was_written() {
        for (epoch, shard, index, serial) in
            [(0, 0, 0, 0), (u64::MAX, u16::MAX, u32::MAX, u64::MAX), (0x1a22_af92_e9b6_9b56, 3, 70, 1_000_000)]
        {
            let minted = Minted { epoch, shard, inbox: InboxId { index, serial } };
            let mut name = Vec::new();
            minted.append_to(&mut name);
            let name = String::from_utf8(name).expect("a name is ASCII");
            assert_eq!(name, minted.to_string());
            assert!(is_inbox(&name));
            assert_eq!(Minted::parse(&name), Some(minted));
        }
    }

    #[test]
    fn what_minting_would_not_write_was_chosen_by_somebody() {
        for name in [
            "_inbox.",
            "_inbox.my-own",
            "_inbox.1.0.0.0",
            "_inbox.000000000000000A.0.0.0",
            "_inbox.000000000000000a.0.0",
            "_inbox.000000000000000a.0.0.0.0",
            "_inbox.000000000000000a.0.0.0.",
            "_inbox.000000000000000a.00.0.0",
            "_inbox.000000000000000a.65536.0.0",
            "_inbox.000000000000000a.0.4294967296.0",
            "_inbox.000000000000000a.0.0.18446744073709551616",
            "_inbox.000000000000000a.0.0.+1",
            "inbox.000000000000000a.0.0.0",
        ] {
            assert_eq!(Minted::parse(name), None, "{name}");
        }
    }
}
