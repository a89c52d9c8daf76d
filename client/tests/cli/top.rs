//! The locks that are held.

use crate::processes::SIGTERM;
use crate::program::{Desk, USAGE, names};
use crate::tmux::Tmux;
use redlock_tests::{Fleet, SOON, eventually, signal};

#[test]
fn one_look_tells_of_all_locks() {
    let mut fleet = Fleet::start(3);
    let desk = Desk::of(&fleet);
    let empty = desk.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!(names(&empty), ["cut", "locks", "nodes"]);
    assert_eq!(empty["locks"].as_array().map(Vec::len), Some(0));
    for (ttl, job) in [("9m", "job:a"), ("5m", "job:b"), ("7m", "other")] {
        desk.run(&["acquire", "--ttl", ttl, "--label", "tester", job]).succeeds();
    }
    // Other keys are no locks.
    fleet[0].connect().call(&["SET", "job:plain", "x"]);
    fleet[2].connect().call(&["DEL", "other"]);
    let keys = |arguments: &[&str]| {
        let board = desk.run(&[&["--json", "top", "--once"], arguments].concat()).succeeds().json();
        let locks = board["locks"].as_array().expect("locks").iter();
        locks.map(|lock| lock["key"].as_str().expect("a key").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["job:b", "other", "job:a"], "the shortest first");
    assert_eq!(keys(&["--sort", "name"]), ["job:a", "job:b", "other"]);
    assert_eq!(keys(&["--sort", "holders"])[0], "other");
    assert_eq!(keys(&["--filter", "job"]), ["job:b", "job:a"]);
    assert_eq!(keys(&["--prefix", "ot"]), ["other"]);
    let board = desk.run(&["--json", "top", "--once"]).succeeds().json();
    let lock = &board["locks"][1];
    assert_eq!(names(lock), ["fence", "held", "held_ms", "holders", "key", "label", "left_ms", "waiters"]);
    assert_eq!(
        (&lock["holders"], &lock["label"], &lock["held"]),
        (&2.into(), &"tester".into(), &true.into())
    );
    let said = desk.run(&["top", "--once"]).succeeds();
    assert!(said.stdout.contains("other  1      2/3    6m5"), "{said:?}");
    fleet[1].kill();
    let board = desk.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!(board["nodes"][1]["up"], false);
    assert_eq!(board["locks"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let fleet = Fleet::start(1);
    let desk = Desk::of(&fleet);
    let mut wire = fleet[0].connect();
    for number in 0..30 {
        wire.call(&["REDLOCK.ACQUIRE", &format!("job:{number}"), "owner", "600000"]);
    }
    let board = desk.run(&["--json", "top", "--once", "--limit", "10"]).succeeds().json();
    assert_eq!(board["locks"].as_array().map(Vec::len), Some(10));
    assert_eq!(board["cut"].as_array().map(Vec::len), Some(1));
    let said = desk.run(&["top", "--once", "--limit", "10"]).succeeds();
    assert!(said.stdout.contains("not all locks are shown"), "{said:?}");
    let board = desk.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!((board["locks"].as_array().map(Vec::len), &board["cut"]), (Some(30), &serde_json::json!([])));
}

#[test]
fn without_a_terminal_it_refuses() {
    let fleet = Fleet::start(1);
    let desk = Desk::of(&fleet);
    let said = desk.run(&["top"]).exits(USAGE);
    assert!(said.stderr.contains("top needs a terminal") && said.stdout.is_empty(), "{said:?}");
}

#[test]
fn it_lives_in_a_terminal_and_leaves_it_as_it_was() {
    let fleet = Fleet::start(3);
    let desk = Desk::of(&fleet);
    let take = |job: &str| desk.run(&["acquire", "--ttl", "9m", job]).succeeds();
    take("alpha");
    let Some(tmux) = Tmux::start(Desk::of(&fleet)) else { return };
    tmux.line("redlock top --interval 100ms; echo code=$?");
    tmux.until("alpha");
    assert!(tmux.is_alternate() && !tmux.is_cooked());
    take("beta");
    tmux.until("beta");
    tmux.letters("n");
    tmux.until("by name");
    tmux.letters("/alp");
    tmux.until("filter: alp");
    tmux.key("Enter");
    let screen = tmux.until("filter \"alp\"");
    assert!(!screen.contains("beta"), "{screen}");
    tmux.letters("q");
    tmux.until("code=0");
    assert!(!tmux.is_alternate());
    eventually("the shell has its terminal", SOON, || {
        tmux.line("true");
        (!tmux.is_alternate()).then_some(())
    });
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let fleet = Fleet::start(1);
    let Some(tmux) = Tmux::start(Desk::of(&fleet)) else { return };
    tmux.line("redlock top & echo $! > pid; fg > /dev/null; echo code=$?; stty -a | grep -o ' -*icanon'");
    eventually("it has the terminal", SOON, || tmux.is_alternate().then_some(()));
    let text =
        eventually("its number is known", SOON, || std::fs::read_to_string(tmux.path().join("pid")).ok());
    signal(text.trim().parse().expect("a number"), SIGTERM);
    tmux.until("code=143");
    let screen = tmux.until("icanon");
    assert!(!screen.contains("-icanon"), "{screen}");
    assert!(!tmux.is_alternate());
}
