//! Nodes and clients that pause for longer than any lock lasts, and then continue.

use redlock_tests::campaign::{Campaign, Fencing, LockMethod, Validity, Violation, Workload, now_ns};
use redlock_tests::{Answer, Fleet, SOON, eventually};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

#[test]
fn nodes_paused_and_resumed() {
    let fleet = Fleet::start(5);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for group in [&[0, 1][..], &[2, 3, 4], &[4, 0], &[0, 1, 2, 3, 4], &[1, 3]] {
        group.iter().for_each(|node| fleet[*node].pause());
        campaign.count_fault();
        if group.len() < 3 {
            campaign.wait_for_holds_by_each(3);
        } else {
            // Attempts last longer than a lock, so requests of the same age wait in the nodes' sockets.
            campaign.wait_for_failures(None, 3);
            campaign.wait_for_failures_only(6);
        }
        group.iter().for_each(|node| fleet[*node].resume());
        campaign.wait_for_holds_by_each(2);
    }
    campaign.finish(&fleet).assert_clean("SIGSTOP of nodes");
}

/// These clients wait for replies without a timeout, and count the validity from the reply.
#[test]
fn control_nodes_paused_under_locks_that_count_from_the_answer() {
    let fleet = Fleet::start_with(5, |_, node| node.without_module());
    let lock = LockMethod::Plain { votes: 3, validity: Validity::FromAnswer };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload { lock, ..Workload::default() });
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(5);
        fleet[2].pause();
        // All clients wait for one node while the locks on the other nodes expire.
        for node in [0, 1, 3, 4] {
            let mut wire = fleet[node].connect();
            eventually("all locks have expired", SOON, || {
                (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
            });
        }
        fleet[2].resume();
        campaign.wait_for_holds(5);
    });
}

/// Pauses each process in turn until the others have held its locks, and resumes it. Returns how many of its holders
/// noticed that they had lost their locks.
fn pause_holders(campaign: &mut Campaign) -> usize {
    let mut learned = 0;
    for process in 0..3 {
        let paused_ns = now_ns();
        campaign.processes[process].pause();
        for other in (0..3).filter(|other| *other != process) {
            campaign.wait_for_holds_by(other as u64, 12);
        }
        let resumed_ns = now_ns();
        campaign.processes[process].resume();
        campaign.count_fault();
        campaign.wait_for_holds_by(process as u64, 3);
        learned += campaign.losses_noticed_after_pause(process as u64, paused_ns, resumed_ns);
    }
    learned
}

#[test]
fn holders_paused_past_their_time() {
    let fleet = Fleet::start(5);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    // Until a holder has noticed its loss, and the storage has rejected a write whose holder had checked its
    // lock before the pause.
    let mut learned = 0;
    eventually("holders have noticed their loss, and the storage has rejected writes", SOON * 6, || {
        learned += pause_holders(&mut campaign);
        (learned > 0 && campaign.rejected_writes() > 0).then_some(())
    });
    campaign.finish(&fleet).assert_clean("SIGSTOP of clients");
}

/// Holders whose processes run are notified before their validity ends.
#[test]
fn waiting_holders_are_notified_before_the_end_of_validity() {
    let fleet = Fleet::start(5);
    let work = Workload { ttl: Duration::from_millis(600), ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    eventually("a holder that ran all the time was notified", SOON * 6, || {
        campaign.wait_for_holds(20);
        (campaign.timely_loss_notifications() > 0).then_some(())
    });
    campaign.finish(&fleet).assert_clean("notified in time");
}

/// A plain lock does not notify its holder. A holder that checks the clock itself checks too late.
#[test]
fn control_plain_locks_do_not_notify_their_holders() {
    let fleet = Fleet::start_with(5, |_, node| node.without_module());
    let work = Workload { lock: LockMethod::PLAIN, ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    let is_late = |violation: &Violation| matches!(violation, Violation::LossToldLate { .. });
    campaign.inject_until_violation(is_late, |campaign| campaign.wait_for_holds(10));
}

/// A storage that ignores fences accepts writes of a holder whose lock has expired.
#[test]
fn control_holders_paused_past_their_time_before_a_storage_without_fences() {
    let fleet = Fleet::start(5);
    let work = Workload { fencing: Fencing::Ignored, ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.wait_for_holds_by_each(3);
    let is_stale = |violation: &Violation| matches!(violation, Violation::StaleWrite { .. });
    campaign.inject_until_violation(is_stale, |campaign| {
        let _ = pause_holders(campaign);
    });
}

/// Kills the oldest process and starts another one.
fn kill_one(campaign: &mut Campaign, fleet: &Fleet) {
    campaign.kill(0);
    campaign.count_fault();
    campaign.add_process(&fleet.urls());
}

#[test]
fn clients_are_killed_while_they_hold_locks() {
    let fleet = Fleet::start(5);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    for _ in 0..6 {
        campaign.wait_for_holds(15);
        kill_one(&mut campaign, &fleet);
        assert!(campaign.all_make_progress(2), "every client must get locks: {}", campaign.summary());
    }
    campaign.wait_for_holds(20);
    campaign.finish(&fleet).assert_clean("kill -9 of clients");
}

/// Locks without a time to live stay with killed clients, until no lock is free.
#[test]
fn control_clients_are_killed_while_they_hold_locks_without_a_ttl() {
    let fleet = Fleet::start_with(5, |_, node| node.without_module());
    let work = Workload { lock: LockMethod::NoExpiry, ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    eventually("a client makes no progress", SOON * 6, || {
        let can_be_had = campaign.all_make_progress(2);
        kill_one(&mut campaign, &fleet);
        (!can_be_had).then_some(())
    });
    println!("control: {}, and a client gets no lock any more", campaign.summary());
}
