//! What the log is promised, kept by both databases: one suite, run on each.

mod cluster;
mod rig;
mod suite;

/// Runs each function of the suite on both databases.
macro_rules! on_both {
    ($($room:ident::{$($name:ident),+ $(,)?};)+) => {
        mod sqlite {
            $($(#[test]
            fn $name() {
                crate::rig::Rig::on_sqlite(crate::suite::$room::$name);
            })+)+
        }
        mod postgres {
            $($(#[test]
            fn $name() {
                crate::rig::Rig::on_postgres(crate::suite::$room::$name);
            })+)+
        }
    };
}

on_both! {
    commit::{
        an_append_at_the_head_is_stamped_and_there,
        an_append_from_a_stale_head_is_left_out_and_the_others_are_written,
        an_append_to_a_partition_that_is_gone_is_left_out,
        stamps_never_fall_below_their_floor,
        a_cursor_is_made_once_and_then_replaced_by_version,
        a_cursor_goes_with_the_append_that_it_needs,
        leases_end_at_the_later_of_floor_and_length,
        dead_letters_go_with_their_cursors,
        a_batch_of_nothing_has_a_time,
        payloads_come_back_byte_for_byte,
        a_thousand_partitions_in_one_batch,
    };
}
