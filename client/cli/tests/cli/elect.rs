//! `elect`: one leader at a time, and the next term.

use crate::processes::SIGTERM;
use crate::program::{Launcher, Running, USAGE};
use redlock_tests::{Fleet, SOON, eventually};

const SCRIPT: &str = "echo leads $REDLOCK_TERM; exec sleep 600";

fn candidate(redlock: &Launcher, name: &str) -> Running {
    redlock.start(&["elect", "--ttl", "5s", "--candidate", name, "job", "--", "sh", "-c", SCRIPT])
}

fn until_waiting(fleet: &Fleet, waiters: i64) {
    for node in fleet.iter() {
        eventually("the candidates wait", SOON, || {
            node.connect().inspect("job").filter(|lock| lock.waiters == waiters).map(drop)
        });
    }
}

#[test]
fn the_next_candidate_leads_when_the_leader_ends() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut one = candidate(&redlock, "one");
    assert_eq!(one.line(), "leads 1");
    let mut two = candidate(&redlock, "two");
    until_waiting(&fleet, 1);
    let shown = redlock.run(&["inspect", "job"]).succeeds();
    assert!(shown.stdout.starts_with("job is held by one, "), "{shown:?}");
    one.signal(SIGTERM);
    one.finish().exits(143);
    assert_eq!(two.line(), "leads 2");
    two.signal(SIGTERM);
    two.finish().exits(143);
    assert!(fleet.is_free("job"));
}

#[test]
fn a_candidate_leads_again_after_a_lost_term() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut one = candidate(&redlock, "one");
    assert_eq!(one.line(), "leads 1");
    // An administrator ends the term; the other candidate waits already.
    let mut two = candidate(&redlock, "two");
    until_waiting(&fleet, 1);
    redlock.run(&["break", "--yes", "job"]).succeeds();
    assert_eq!(two.line(), "leads 2");
    until_waiting(&fleet, 1);
    assert!(one.is_running(), "the first candidate waits for its next term");
    redlock.run(&["break", "--yes", "job"]).succeeds();
    assert_eq!(one.line(), "leads 3");
    // A leader finds out at its next extension that its term was broken.
    until_waiting(&fleet, 1);
    for running in [one, two] {
        running.signal(SIGTERM);
        let said = running.finish().exits(143);
        assert!(said.stderr.contains("waiting for the next one"), "{said:?}");
    }
}

#[test]
fn the_status_of_the_command_is_the_exit_code() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["elect", "job", "sh", "-c", "echo $REDLOCK_FENCE $REDLOCK_RESOURCE; exit 7"]);
    assert_eq!(said.exits(7).stdout, "1 job\n");
    assert!(fleet.is_free("job"), "the candidate has resigned");
    redlock.run(&["elect", "job"]).exits(USAGE);
}

/// The service manager stops the program while the nodes are away: it must end, and not wait for another term.
#[test]
fn a_signal_during_a_lost_term_ends_the_candidate() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // A command that takes its time to end, so that the signal comes while the lost term is being stopped.
    let script = "trap 'echo stops' TERM; echo leads; while true; do sleep 0.1; done";
    let mut one =
        redlock.start(&["elect", "--ttl", "4s", "--kill-after", "1s", "job", "--", "sh", "-c", script]);
    assert_eq!(one.line(), "leads");
    (0..3).for_each(|node| fleet[node].kill());
    assert_eq!(one.line(), "stops", "the term is lost");
    one.signal(SIGTERM);
    let said = one.finish().exits(143);
    assert!(!said.stderr.contains("waiting for the next one"), "{said:?}");
}
