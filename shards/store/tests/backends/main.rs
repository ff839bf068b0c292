//! What the log is promised, kept by both databases: one suite, run on each.

#[path = "../beside/mod.rs"]
mod beside;
mod cluster;
mod control;
mod rig;
mod server;
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
        what_follows_a_segment_is_written_behind_it_or_left_out_with_it,
        stamps_never_fall_below_their_floor,
        a_cursor_is_made_once_and_then_replaced_by_version,
        a_cursor_goes_with_the_append_that_it_needs,
        leases_end_at_the_later_of_floor_and_length,
        dead_letters_go_with_their_cursors,
        a_batch_of_nothing_has_a_time,
        payloads_come_back_byte_for_byte,
        a_thousand_partitions_in_one_batch,
    };
    create::{
        what_is_there_stays_as_it_is_and_is_answered,
        one_call_makes_of_every_kind_and_says_what_is_gone,
        names_are_text_and_nothing_else,
        tenants_do_not_meet,
    };
    load::{
        segments_begin_with_the_one_that_holds_the_offset_and_end_with_the_bytes,
        indexes_go_from_the_newest_down_to_the_first_that_is_too_old,
        an_offset_is_found_by_time,
        partitions_and_cursors_come_in_pages,
        queues_are_discovered_by_namespace_and_task,
        a_partition_by_id_comes_with_its_queue_and_groups,
        what_changed_is_seen_once_it_is_safe,
        a_made_partition_is_found_by_name_only_in_its_queue,
    };
    admin::{
        configuring_makes_a_queue_and_then_changes_what_is_named,
        deleting_a_queue_takes_everything_of_it,
        extending_reaches_every_live_lease_of_that_id_and_shortens_none,
        declarations_are_kept_replaced_and_forgotten,
        nothing_is_left_of_a_queue_that_was_deleted,
    };
    control::{
        where_nobody_said_anything_everything_is_on_and_nothing_granted,
        a_switch_stays_where_it_was_put,
        switches_do_not_touch_each_other,
        grants_come_back_in_every_field_and_each_for_its_tenant,
        a_grant_is_replaced_whole_and_taken_away_once,
        a_limit_beyond_what_is_stored_is_the_most_that_is,
        what_an_operator_wrote_by_hand_is_read,
    };
    retain::{
        what_is_old_is_gone_for_readers_at_once_and_removed_later,
        the_newest_segment_stays_empty_and_guards_the_head,
        consumed_history_goes_when_every_group_is_past_it,
        steps_of_a_limited_size_come_to_an_end,
    };
    read::{
        pending_is_behind_the_slowest_named_group_or_queue_mode,
        depth_counts_for_one_group,
        lags_name_the_most_pending_first,
        changed_partitions_come_in_pages_with_a_safe_time,
        queues_are_listed_newest_first,
    };
}
