//! What a database does for the writer.

use queen_fabric::protocol::store::{StoreAnswer, StoreAsk};

/// A database that applies asks in batches. It lives on the writer's thread and may block.
pub(crate) trait Backend: Send + 'static {
    /// Applies all asks in their order and commits once: the answers, one per ask, in that order. A declaration is
    /// kept under the time at which it is applied, whatever the ask says.
    ///
    /// # Errors
    /// Nothing was applied; the text says why, for the clients that asked.
    fn apply(&mut self, asks: &[StoreAsk]) -> Result<Vec<StoreAnswer>, String>;

    /// Leaves the database as the next start likes to find it.
    fn close(self);
}
