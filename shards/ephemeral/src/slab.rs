//! A slab of records named by `u32`.
//!
//! Records live in pages that never move and never double, so a million small records cost a
//! million records, not up to two. Used for queues, leases, parked pops and timers.

const PAGE_BITS: u32 = 6;
const PAGE: usize = 1 << PAGE_BITS;

/// The index that names no record.
pub(crate) const NONE: u32 = u32::MAX;

enum Entry<T> {
    Free { next: u32 },
    Full(T),
}

pub(crate) struct Slab<T> {
    pages: Vec<Vec<Entry<T>>>,
    free: u32,
    len: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), free: NONE, len: 0 }
    }

    /// How many records there are.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// One past the largest index that was ever handed out.
    pub(crate) fn slots(&self) -> u32 {
        match self.pages.last() {
            Some(last) => ((self.pages.len() - 1) * PAGE + last.len()) as u32,
            None => 0,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free != NONE {
            let index = self.free;
            let entry = self.entry_mut(index);
            let Entry::Free { next } = *entry else { unreachable!("the free list names a record") };
            *entry = Entry::Full(value);
            self.free = next;
            return index;
        }
        let index = self.slots();
        assert!(index != NONE, "a slab holds fewer than 2^32 records");
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = self.pages.last_mut().expect("a page was just made");
        page.push(Entry::Full(value));
        index
    }

    /// Takes the record out. Panics if there is none: an index is owned by whoever inserted it.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let next = self.free;
        let entry = std::mem::replace(self.entry_mut(index), Entry::Free { next });
        let Entry::Full(value) = entry else { panic!("slab slot {index} is free") };
        self.free = index;
        self.len -= 1;
        value
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let page = self.pages.get((index >> PAGE_BITS) as usize)?;
        match page.get(index as usize & (PAGE - 1)) {
            Some(Entry::Full(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let page = self.pages.get_mut((index >> PAGE_BITS) as usize)?;
        match page.get_mut(index as usize & (PAGE - 1)) {
            Some(Entry::Full(value)) => Some(value),
            _ => None,
        }
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.pages[(index >> PAGE_BITS) as usize][index as usize & (PAGE - 1)]
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.get(index).expect("a live slab index")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("a live slab index")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_slot_is_used_again_before_a_new_one() {
        let mut slab = Slab::new();
        let indexes: Vec<u32> = (0..200).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.remove(indexes[70]), 70);
        assert!(slab.get(indexes[70]).is_none());
        assert_eq!(slab.insert(1000), indexes[70]);
        assert_eq!(slab[indexes[70]], 1000);
        assert_eq!((slab.len(), slab.slots()), (200, 200));
    }
}
