//! Tables of what is stored give their room back when most of it has gone: a map never does so by itself, and memory must
//! follow what is there, not what was there once.

use std::{collections::VecDeque, hash::Hash};

use hashbrown::HashMap;

/// So many places may stand empty in any case.
const EMPTY_MAX: usize = 16;

/// The room to shrink to, if more than three quarters stand empty. Half of it is free then: as many entries have to come
/// or go again before the table moves another time as it has moved now.
pub(super) fn worth(entries: usize, room: usize) -> Option<usize> {
    (room > 4 * entries + EMPTY_MAX).then_some(2 * entries)
}

/// After something was removed from a map.
pub(super) fn of_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if let Some(room) = worth(map.len(), map.capacity()) {
        map.shrink_to(room);
    }
}

/// After something was removed from a queue.
pub(super) fn of_queue<T>(queue: &mut VecDeque<T>) {
    if let Some(room) = worth(queue.len(), queue.capacity()) {
        queue.shrink_to(room);
    }
}
