//! What every storage must do, said once and run against each of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is the failure of the test"
)]

mod cases;
mod claims_at_once;
mod groups;
mod item_model;
mod item_weights;
mod lossy;
mod meaning;
mod memory;
mod on_postgres;
mod only_postgres;
mod rows;
mod schemas;

use cases::backend::Backend;

/// Makes one test of every case for a backend. A case that is missing here is dead code, which
/// the linter refuses.
macro_rules! backend {
    ($backend:ident, $open:path) => {
        mod $backend {
            use super::cases;
            backend!(@room $open, commits:
                a_checkpoint_comes_back_with_every_field
                odd_unicode_in_names_survives
                nul_in_names_survives
                depth_counts_along_the_branch
                a_stale_head_is_refused_and_writes_nothing
                a_stale_epoch_is_refused_and_writes_nothing
                of_eight_writers_on_one_head_one_wins
                a_commit_sent_again_is_answered_and_not_repeated
                commits_of_one_call_keep_their_order_and_fail_alone
                what_follows_a_commit_that_cannot_be_stored_fails_with_it
                a_subgraph_row_keeps_its_depth_and_moves_no_head
                many_threads_commit_at_once
                events_are_numbered_without_a_gap_and_messages_know_theirs
                the_first_result_of_a_task_wins
                rows_are_replaced_when_asked_and_kept_otherwise
                output_is_replaced_when_asked_in_a_flush_and_in_a_commit
            );
            backend!(@room $open, shared_commits:
                supersteps_that_share_a_transaction_are_stored_as_those_that_do_not
                events_of_two_branches_that_share_a_transaction_have_numbers_of_their_own
                a_run_ends_in_the_transaction_of_its_last_supersteps
                a_run_whose_last_supersteps_are_refused_has_not_ended
                a_temporary_thread_goes_with_the_last_supersteps_of_its_run
                runs_that_end_at_once_end_alone_or_are_refused_alone
                runs_of_two_branches_of_a_thread_end_at_once
            );
            backend!(@room $open, results:
                the_result_of_the_only_task_stands_in_the_row_of_its_checkpoint
                the_results_of_several_tasks_stand_in_the_row_of_their_checkpoint
                results_beside_control_values_and_readable_ones_stay_rows
                a_copy_and_a_new_branch_take_results_along_that_stand_in_rows_of_checkpoints
            );
            backend!(@room $open, loads:
                what_does_not_exist_is_not_found
                a_checkpoint_is_found_by_id_head_activity_and_age
                without_values_there_are_writes_but_no_blobs
                every_version_comes_with_its_chain_of_deltas
                blobs_above_a_weight_are_measured_and_not_read
                blobs_are_found_by_version
                writes_are_ordered_by_path_task_and_index
                subgraph_state_is_looked_up_along_the_path
                what_is_stored_of_a_thread_is_summed
                a_page_has_everything_of_the_checkpoints_that_are_there
                an_envelope_in_json_comes_back_as_it_was
            );
            backend!(@room $open, weights:
                blobs_weigh_a_multiple_of_their_bytes_by_every_kind_of_tag
                checkpoints_weigh_what_their_rows_values_and_writes_do
                a_result_in_the_row_of_its_checkpoint_weighs_as_one_of_its_own
                channels_weigh_what_their_chains_do
                interrupts_weigh_a_multiple_of_their_bytes
                a_checkpoint_beside_its_thread_has_no_more_pending_than_is_read_at_once
            );
            backend!(@room $open, list_weights:
                listed_threads_weigh_their_metadata_and_the_first_ones_are_whole
                events_weigh_their_payloads
                runs_weigh_their_requests_and_metadata
                lost_runs_take_slots_by_what_their_requests_weigh
                assistants_and_their_versions_weigh_what_is_read_of_them
                crons_weigh_what_is_read_of_them
            );
            backend!(@room $open, batches:
                threads_are_read_at_once_with_their_graphs
                events_of_several_threads_are_read_within_limits
                nodes_of_messages_are_read_with_their_trees
                channels_of_several_states_are_read_within_limits
            );
            backend!(@room $open, expiry:
                a_thread_expires_some_time_after_its_last_change
                an_expired_thread_is_taken_once_and_looked_at_in_a_transaction
                a_thread_with_an_open_run_does_not_expire
            );
            backend!(@room $open, families:
                forks_of_a_tree_are_read_page_by_page
                what_several_paths_share_is_read_once
                a_thread_is_outlined_by_depth_from_any_depth_on
            );
            backend!(@room $open, foreign:
                ids_of_another_tree_are_found_by_no_look_up
                ids_of_another_tree_are_changed_by_no_transaction
                what_is_done_to_a_copy_leaves_the_rows_of_its_original
            );
            backend!(@room $open, heads:
                a_thread_is_read_with_the_level_of_a_principal
                pruning_marks_a_head_to_which_it_gives_another_parent
            );
            backend!(@room $open, lists:
                checkpoints_are_listed_newest_first
                a_list_is_cut_by_namespace_limit_age_and_id
                a_list_is_filtered_by_source_step_and_run
                a_list_is_filtered_by_containment_in_metadata
                a_list_is_filtered_by_graph_and_assistant
                listed_checkpoints_have_values_and_writes
            );
            backend!(@room $open, labels:
                a_filter_by_labels_finds_what_is_found_without_them
                labels_go_with_their_checkpoints
            );
            backend!(@room $open, branches:
                a_new_branch_comes_with_its_first_commit
                automatic_names_never_collide
                a_branch_can_open_with_a_flush_and_stay_inactive
                opening_needs_the_source_to_be_held
                an_open_sent_again_is_skipped
                a_resumed_checkpoint_takes_its_pending_writes_along
                copies_see_subgraph_rows_older_than_they_are
                copies_of_copies_see_the_state_that_asked
                a_run_moves_to_the_branch_it_opens
            );
            backend!(@room $open, threads:
                a_thread_comes_back_as_created
                threads_that_are_created_at_one_time_are_each_their_own
                a_taken_id_is_refused_or_answered
                metadata_is_merged_by_top_level_keys
                a_slot_is_read_or_taken_over
                a_writer_says_how_it_left_the_branch
                state_changes_move_the_times
                the_time_of_the_state_is_that_of_the_active_branch
                a_deleted_thread_leaves_a_tombstone_without_content
                nobody_writes_to_a_deleted_thread
            );
            backend!(@room $open, thread_times:
                a_run_moves_the_time_of_its_thread_when_it_starts_and_however_it_ends
            );
            backend!(@room $open, creations:
                runs_that_are_created_at_once_are_refused_alone
                of_runs_with_one_id_that_are_created_at_once_one_is_there
                a_run_that_is_created_with_others_is_as_one_that_is_alone
            );
            backend!(@room $open, refusals:
                the_first_of_several_reasons_against_a_run_counts
            );
            backend!(@room $open, runs:
                a_started_run_comes_back_with_every_field
                a_run_without_a_worker_waits
                a_run_needs_a_thread_and_a_free_id
                a_run_brings_its_thread_metadata_and_config
                a_run_ends_once
                an_end_by_a_fenced_writer_is_refused
                a_temporary_thread_goes_with_its_run
                runs_are_listed_newest_first
                the_end_of_a_run_settles_its_last_message
                runs_created_together_are_all_there_or_none
                a_run_is_found_by_its_id_alone
            );
            backend!(@room $open, queue:
                runs_of_a_slot_are_claimed_one_by_one_in_order
                a_run_is_claimed_once_however_many_ask
                a_run_is_created_only_while_its_thread_has_not_changed
                a_claim_takes_no_more_than_asked
                a_run_waits_for_its_time
                a_cancelled_run_is_fenced_off
                cancelling_one_run_leaves_the_others
                a_run_of_a_dead_process_is_taken_over
                a_run_that_cannot_be_recovered_leaves_the_others
                as_many_runs_are_taken_over_as_there_is_room_for
                lost_runs_are_taken_over_until_their_requests_take_all_slots
                a_run_is_taken_over_by_one_of_those_who_try
                a_run_that_is_lost_three_times_ends_as_error
                handing_a_run_over_is_no_death
                a_run_that_moves_on_between_deaths_is_not_given_up
                a_stateless_run_that_is_given_up_leaves_no_thread
            );
            backend!(@room $open, queue_rights:
                a_claim_takes_no_more_of_one_principal_than_it_may_have
                runs_are_claimed_until_their_requests_take_all_slots
                principals_have_slots_in_turn_by_what_their_requests_take
                the_right_of_a_runs_principal_is_read_when_it_is_created_and_claimed
                a_claim_needs_no_search_to_refuse_what_waits_when_a_right_is_withdrawn
                the_right_of_a_runs_principal_is_read_when_it_is_taken_over
            );
            backend!(@room $open, searches:
                a_claim_without_a_search_finds_freed_runs_on_the_threads_that_it_is_told_of
                a_claim_searches_one_slice_and_says_where_the_next_one_begins
                the_slice_after_one_begins_with_another_thread
                a_run_that_nobody_was_told_of_is_found_in_the_last_slice
            );
            backend!(@room $open, open_runs:
                open_runs_are_read_in_pages_of_those_that_one_may_write_to
            );
            backend!(@room $open, lost_firings:
                a_due_time_of_a_changed_or_disabled_cron_is_lost
                a_firing_whose_run_is_there_makes_no_second_one
            );
            backend!(@room $open, sessions:
                a_thread_row_has_every_field
                branches_are_inserted_renamed_activated_and_deleted
                the_head_moves_and_the_run_of_a_branch_are_told
                a_tag_is_set_moved_and_deleted
                events_are_appended_without_a_gap
                a_dropped_transaction_leaves_nothing
                a_superstep_in_a_transaction_is_fenced
            );
            backend!(@room $open, outbox_sweeps:
                dead_deliveries_are_swept_in_batches_and_others_stay
            );
            backend!(@room $open, outbox:
                every_end_of_a_run_with_a_webhook_is_reported_once
                what_is_rolled_back_or_deleted_is_not_reported
                a_host_of_any_length_keeps_no_run_from_ending
                a_delivery_is_taken_by_one_and_due_after_its_lease
                a_failed_delivery_waits_and_a_dead_one_is_swept
                deliveries_are_read_in_slices_of_hosts
                what_goes_with_its_thread_is_reported_all_the_same
            );
            backend!(@room $open, log:
                chunks_come_back_by_run_and_by_thread
                what_is_read_at_once_is_bounded
                a_principal_has_its_newest_chunks_up_to_its_share
                what_went_with_its_run_or_thread_is_in_nobodys_share
                a_chunk_is_written_once_and_by_whoever_executes_the_run
                pruning_takes_the_logs_of_ended_runs_without_checkpoints
                a_run_writes_on_when_it_opens_a_branch
                the_last_frames_come_with_the_end_of_their_run_or_not_at_all
                runs_of_a_thread_share_positions_without_a_gap
                a_takeover_supersedes_what_no_checkpoint_stands_for
                the_log_of_a_run_goes_with_it
                old_chunks_are_swept_and_those_of_stateless_runs_stay_a_while
            );
            backend!(@room $open, paths:
                paths_are_walked_across_branches_and_forks
                a_question_is_open_until_its_task_has_a_result
                what_tasks_wait_for_is_read_without_their_results
                the_message_index_is_read_by_id_chain_and_parent
            );
            backend!(@room $open, copies:
                writes_are_copied_as_they_are_at_the_head
                an_answered_checkpoint_is_copied_as_interrupted
                what_was_stored_inside_at_the_head_is_shared_with_new_branches
            );
            backend!(@room $open, assistants:
                an_assistant_comes_back_with_every_field_to_whom_it_is
                a_change_is_a_version_that_can_be_activated
                assistants_are_listed_in_every_order_with_their_sizes
            );
            backend!(@room $open, counts:
                an_owner_has_as_many_crons_as_it_may
                of_crons_created_at_the_same_time_no_more_stay_than_may
                an_owner_has_as_many_assistants_as_it_may
            );
            backend!(@room $open, cron_lists:
                crons_are_listed_in_every_order_and_counted
                listed_crons_are_read_with_what_is_wanted_of_them
                due_crons_are_read_in_pages_without_a_gap
            );
            backend!(@room $open, crons:
                a_cron_comes_back_with_every_field
                a_cron_needs_its_assistant_and_a_level_on_its_thread
                a_cron_that_changed_meanwhile_is_not_replaced
                a_cron_goes_with_its_thread_or_its_assistant
                a_due_time_has_one_run_whoever_tries
                a_due_time_whose_run_is_refused_is_past
                a_cron_whose_principal_lost_the_level_is_disabled
            );
            backend!(@room $open, takeovers:
                open_runs_are_told_pinned_and_cancelled
                executed_runs_of_a_principal_are_found_on_one_tree
                a_run_and_what_it_follows_are_one_transaction
                fifty_transactions_on_one_tree_queue
                a_run_starts_behind_a_locked_branch_and_sees_its_head
            );
            backend!(@room $open, lifecycle:
                what_a_fork_inherits_survives_the_deletion_of_its_ancestors
                a_tombstone_loses_what_only_its_last_fork_needed
                a_tree_is_deleted_with_all_its_threads
                a_copy_has_all_its_thread_sees_and_stands_alone
                a_copy_is_refused_when_it_cannot_be_made
                pruning_keeps_what_somebody_stands_on
                pruning_keeps_the_state_of_graphs_inside
                a_branch_is_not_opened_where_nothing_is_any_more
                a_run_does_not_start_where_nothing_is_any_more
                an_undone_run_leaves_no_result_without_its_value
            );
            backend!(@room $open, run_events:
                runs_log_what_is_decided_for_all_storages
                lost_runs_log_what_is_decided_for_all_storages
            );
            backend!(@room $open, strategies:
                reject_refuses_while_another_run_is_open
                of_many_rejecting_runs_one_starts
                a_run_that_ends_others_is_created_only_while_its_thread_has_not_changed
                enqueue_waits_behind_others
                interrupt_ends_others_and_keeps_what_they_did
                rollback_undoes_what_the_others_did
                rollback_keeps_what_a_branch_stands_on
                rollback_removes_a_branch_the_run_opened
                the_log_of_a_rollback_ends_every_run_before_it_resets_the_head
            );
        }
    };
    (@room $open:path, $room:ident: $($case:ident)*) => {
        mod $room {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::cases::$room::$case(&$open().await).await;
                }
            )*
        }
    };
}

async fn sqlite_backend() -> Backend {
    cases::sqlite::open()
}

backend!(sqlite, crate::sqlite_backend);

async fn postgres_backend() -> Backend {
    cases::postgres::open().await
}

backend!(postgres, crate::postgres_backend);

/// The checker reads rows of both storages into one form, so one of them shows that it complains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_damage_is_noticed() {
    let b = sqlite_backend().await;
    cases::lifecycle::family(&b).await;
    b.tables.check(false).await;
    let test_support::invariants::Tables::File(path) = &b.tables else {
        panic!("SQLite is a file");
    };
    let copy = path.with_extension("damaged");
    for (number, damage) in [
        (
            "I1",
            "UPDATE checkpoints SET depth = depth + 7 WHERE depth = 1",
        ),
        ("I2", "UPDATE branches SET head_depth = head_depth + 1"),
        (
            "I3",
            "UPDATE threads SET fork_checkpoint_id = NULL, fork_checkpoint_depth = -1",
        ),
        (
            "I4",
            "UPDATE threads SET last_event_number = last_event_number + 1",
        ),
        ("I5", "UPDATE threads SET active_branch_id = tree_id"),
        (
            "I6",
            "DELETE FROM checkpoint_blobs WHERE base_version IS NULL",
        ),
        ("I7", "UPDATE checkpoint_writes SET checkpoint_id = tree_id"),
        ("I8", "DELETE FROM message_nodes WHERE ordinal = 2"),
        (
            "I11",
            "UPDATE checkpoints SET root_checkpoint_id = tree_id WHERE checkpoint_ns <> ''",
        ),
        ("I12", "UPDATE message_nodes SET event_number = 99"),
    ] {
        let _ = std::fs::remove_file(&copy);
        let db = rusqlite::Connection::open(path).unwrap();
        db.execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
            .unwrap();
        let damaged = rusqlite::Connection::open(&copy).unwrap();
        assert!(damaged.execute(damage, []).unwrap() > 0, "{number}");
        let complaints = test_support::invariants::Tables::File(copy.clone())
            .complaints(false)
            .await;
        let told = complaints
            .iter()
            .any(|text| text.starts_with(&format!("{number}:")));
        assert!(told, "{number}: {complaints:?}");
    }
}
