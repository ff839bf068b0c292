//! What the kernel says of this process. Read when somebody asks, from memory: procfs touches no disk.

use std::fs;

/// Ticks a second of the times in `/proc/self/stat`: fixed in the kernel's interface.
const TICKS_PER_SECOND: u64 = 100;

/// Bytes of the process that are in memory; 0 where procfs is not there.
pub(super) fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Microseconds of processor time that the process used, in user mode and in the kernel.
pub(super) fn cpu_us() -> (u64, u64) {
    fs::read_to_string("/proc/self/stat").ok().and_then(|text| parse_stat(&text)).unwrap_or((0, 0))
}

/// The program's name stands in parentheses and may hold anything; the fields are counted from behind it.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next_us = || Some(fields.next()?.parse::<u64>().ok()? * (1_000_000 / TICKS_PER_SECOND));
    Some((next_us()?, next_us()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 7 3 0 0 20 0 4 0 100 0 0";
        assert_eq!(parse_stat(text), Some((70_000, 30_000)));
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident_bytes() > 0);
    }
}
