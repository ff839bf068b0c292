//! Lists and counts: the store answers them on its own.

use super::{Job, Log, Step, op::OpKey};
use crate::{read::Read, store::Work};

impl<T: Copy> Log<T> {
    pub(super) fn start_read(&mut self, key: OpKey, read: Option<Read>) -> Step {
        if let Some(read) = read {
            self.start(Job::Read(key), Work::Read(read));
        }
        Step::Waits
    }
}
