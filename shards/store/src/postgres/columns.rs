//! The parts of a batch as parameters, column by column. Borrows the large ones.

use queen_log::{
    row::DeadLetter,
    store::{Append, Batch, CursorWrite, KEEP_LEASE},
};
use tokio_postgres::types::ToSql;

use super::values::Id;

/// Arrays of equal length for each kind of row, in the order in which the statements take them.
#[derive(Default)]
pub(super) struct Columns<'a>(Vec<Box<dyn ToSql + Sync + 'a>>);

impl<'a> Columns<'a> {
    /// Nine columns.
    pub(super) fn add_appends(&mut self, appends: &'a [Append]) {
        self.add(appends, |append| Id(append.partition));
        self.add(appends, |append| append.base.cast_signed());
        self.add(appends, |append| append.next.cast_signed());
        self.add(appends, |append| append.floor_us);
        self.add(appends, |append| append.ahead_us);
        self.add(appends, |append| append.mark);
        self.add(appends, |append| append.follows);
        self.add(appends, |append| append.hashes.as_slice());
        self.add(appends, |append| append.data.as_slice());
    }

    /// Where appends stand and what they are marked with: three columns.
    pub(super) fn add_marks(&mut self, appends: &'a [Append]) {
        self.add(appends, |append| Id(append.partition));
        self.add(appends, |append| append.base.cast_signed());
        self.add(appends, |append| append.mark);
    }

    /// Eleven columns.
    pub(super) fn add_cursors(&mut self, cursors: &'a [CursorWrite]) {
        self.add_cursor_names(cursors);
        self.add_cursor_places(cursors);
    }

    /// The same with the partitions of the appends that they need, as the fifth of twelve.
    pub(super) fn add_cursors_with_needs(&mut self, batch: &'a Batch) {
        self.add_cursor_names(&batch.cursors);
        self.add(&batch.cursors, |cursor| cursor.needs_append.map(|needed| Id(batch.appends[needed].partition)));
        self.add_cursor_places(&batch.cursors);
    }

    fn add_cursor_names(&mut self, cursors: &'a [CursorWrite]) {
        self.add(cursors, |cursor| Id(cursor.partition));
        self.add(cursors, |cursor| &*cursor.group);
        self.add(cursors, |cursor| cursor.expect);
        self.add(cursors, |cursor| cursor.version);
    }

    fn add_cursor_places(&mut self, cursors: &'a [CursorWrite]) {
        self.add(cursors, |cursor| cursor.next.cast_signed());
        self.add(cursors, |cursor| cursor.run_end.cast_signed());
        self.add(cursors, |cursor| cursor.lease.map(|lease| Id(lease.id)));
        self.add(cursors, |cursor| cursor.lease.map(|lease| lease.floor_us));
        self.add(cursors, |cursor| cursor.lease.and_then(|lease| (lease.for_us != KEEP_LEASE).then_some(lease.for_us)));
        self.add(cursors, |cursor| cursor.retries);
        self.add(cursors, |cursor| cursor.consumed.cast_signed());
    }

    /// Nine columns, the second of which are the places of their cursors, from 1.
    pub(super) fn add_dead(&mut self, dead: &'a [(usize, DeadLetter)]) {
        self.add(dead, |(_, letter)| Id(letter.id));
        self.add(dead, |(cursor, _)| *cursor as i64 + 1);
        self.add(dead, |(_, letter)| Id(letter.partition));
        self.add(dead, |(_, letter)| letter.offset.cast_signed());
        self.add(dead, |(_, letter)| &*letter.group);
        self.add(dead, |(_, letter)| letter.transaction_id.as_bytes());
        self.add(dead, |(_, letter)| letter.error.as_bytes());
        self.add(dead, |(_, letter)| letter.retries);
        self.add(dead, |(_, letter)| letter.record.as_slice());
    }

    fn add<R, T: ToSql + Sync + 'a>(&mut self, rows: &'a [R], value: impl Fn(&'a R) -> T) {
        self.0.push(Box::new(rows.iter().map(value).collect::<Vec<T>>()));
    }

    /// All parameters of a statement that begins with these.
    pub(super) fn after<'s>(&'s self, first: &[&'s (dyn ToSql + Sync)]) -> Vec<&'s (dyn ToSql + Sync)> {
        first.iter().copied().chain(self.0.iter().map(|column| &**column as &(dyn ToSql + Sync))).collect()
    }
}
