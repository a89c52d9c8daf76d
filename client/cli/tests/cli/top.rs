//! `redlock top`.

use crate::processes::{SIGINT, SIGTERM};
use crate::program::{Launcher, NO_QUORUM, REJECTED, USAGE, names};
use crate::tmux::Tmux;
use redlock_tests::{Fleet, SOON, Server, eventually, granted, signal};
use std::time::{Duration, Instant};

#[test]
fn a_snapshot_shows_all_locks() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let empty = redlock.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!(names(&empty), ["cut", "locks", "needed", "nodes", "refused"]);
    assert_eq!(empty["locks"].as_array().map(Vec::len), Some(0));
    for (ttl, job) in [("9m", "job:a"), ("5m", "job:b"), ("7m", "other")] {
        redlock.run(&["acquire", "--ttl", ttl, "--label", "tester", job]).succeeds();
    }
    // Keys that are not locks are not shown.
    fleet[0].connect().call(&["SET", "job:plain", "x"]);
    fleet[2].connect().call(&["DEL", "other"]);
    let keys = |arguments: &[&str]| {
        let board = redlock.run(&[&["--json", "top", "--once"], arguments].concat()).succeeds().json();
        let locks = board["locks"].as_array().expect("locks").iter();
        locks.map(|lock| lock["key"].as_str().expect("a key").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["job:b", "other", "job:a"], "the shortest time left first");
    assert_eq!(keys(&["--sort", "name"]), ["job:a", "job:b", "other"]);
    assert_eq!(keys(&["--sort", "holders"])[0], "other");
    assert_eq!(keys(&["--filter", "job"]), ["job:b", "job:a"]);
    assert_eq!(keys(&["--prefix", "ot"]), ["other"]);
    let board = redlock.run(&["--json", "top", "--once"]).succeeds().json();
    let lock = &board["locks"][1];
    assert_eq!(
        names(lock),
        [
            "fence",
            "held",
            "held_ms",
            "holders",
            "key",
            "label",
            "left_ms",
            "resource",
            "shared_by",
            "waiters"
        ]
    );
    assert_eq!(
        (&lock["holders"], &lock["label"], &lock["held"]),
        (&2.into(), &"tester".into(), &true.into())
    );
    let said = redlock.run(&["top", "--once"]).succeeds();
    assert!(said.stdout.contains("other  1      2/3    6m5"), "{said:?}");
    fleet[1].kill();
    let board = redlock.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!(board["nodes"][1]["up"], false);
    assert_eq!(board["locks"].as_array().map(Vec::len), Some(3));
    fleet[2].kill();
    let board = redlock.run(&["--json", "top", "--once"]).exits(NO_QUORUM).json();
    assert_eq!(board["nodes"][2]["up"], false, "the snapshot is printed without a majority, too");
}

/// Two nodes may hold a lock with two fences, as after an attempt that was abandoned.
#[test]
fn all_nodes_that_hold_a_lock_are_counted_whatever_the_fence() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    for (node, fence) in [(0, "5"), (1, "6"), (2, "7")] {
        granted(&fleet[node].connect().call(&["REDLOCK.ACQUIRE", "job", "me", "600000", "FENCE", fence]));
    }
    for command in [&["--json", "top", "--once"][..], &["--json", "ls"]] {
        let lock = redlock.run(command).succeeds().json()["locks"][0].clone();
        assert_eq!((&lock["holders"], &lock["held"]), (&3.into(), &false.into()), "{lock}");
    }
}

#[test]
fn a_missing_permission_is_named() {
    let blind = "on >hush ~* &* -@all +hello +redlock.node +redlock.inspect +info";
    let shy = "on >hush ~* &* -@all +hello +redlock.node +scan +info";
    let fleet = Fleet::start_with(3, |_, node| node.user("blind", blind).user("shy", shy));
    Launcher::of(&fleet).run(&["acquire", "job"]).succeeds();
    for (user, command) in [("blind", "scan"), ("shy", "redlock.inspect")] {
        let login = format!("redis://{user}:hush@");
        let urls: Vec<String> = fleet.urls().iter().map(|url| url.replace("redis://", &login)).collect();
        let redlock = Launcher::at(&urls);
        let said = redlock.run(&["top", "--once"]).exits(REJECTED);
        let last = said.stdout.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("not all locks are shown: NOPERM") && last.to_lowercase().contains(command),
            "{said:?}"
        );
        assert!(said.stderr.contains("0 of 3 nodes showed their locks, 2 are needed"), "{said:?}");
        let board = redlock.run(&["--json", "top", "--once"]).exits(REJECTED).json();
        assert_eq!(board["refused"].as_array().map(Vec::len), Some(3));
        let words = board["refused"][0]["error"].as_str().expect("words");
        assert!(words.contains("NOPERM") && words.to_lowercase().contains(command), "{words}");
    }
}

#[test]
fn a_long_list_is_cut_and_the_last_line_says_so() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let mut wire = fleet[0].connect();
    for number in 0..30 {
        wire.call(&["REDLOCK.ACQUIRE", &format!("job:{number}"), "owner", "600000"]);
    }
    let board = redlock.run(&["--json", "top", "--once", "--limit", "10"]).succeeds().json();
    assert_eq!(board["locks"].as_array().map(Vec::len), Some(10));
    assert_eq!(board["cut"].as_array().map(Vec::len), Some(1));
    let said = redlock.run(&["top", "--once", "--limit", "10"]).succeeds();
    assert!(said.stdout.contains("not all locks are shown"), "{said:?}");
    let board = redlock.run(&["--json", "top", "--once"]).succeeds().json();
    assert_eq!((board["locks"].as_array().map(Vec::len), &board["cut"]), (Some(30), &serde_json::json!([])));
}

#[test]
fn without_a_terminal_it_refuses() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["top"]).exits(USAGE);
    assert!(said.stderr.contains("top needs a terminal") && said.stdout.is_empty(), "{said:?}");
}

#[test]
fn it_refreshes_filters_and_restores_the_terminal() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let take = |job: &str| redlock.run(&["acquire", "--ttl", "9m", job]).succeeds();
    take("alpha");
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock top --interval 100ms; echo code=$?");
    tmux.until("alpha");
    assert!(tmux.is_alternate() && !tmux.is_cooked());
    assert!(is_colored(&tmux), "healthy nodes are green");
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
    eventually("the shell has the terminal again", SOON, || {
        tmux.line("true");
        (!tmux.is_alternate()).then_some(())
    });
}

/// Whether there is green, red or yellow on the screen.
fn is_colored(tmux: &Tmux) -> bool {
    // The codes with 16 colours, or with 256.
    let screen = tmux.colored_screen();
    ["1", "2", "3"].iter().any(|color| {
        screen.contains(&format!("\u{1b}[3{color}m")) || screen.contains(&format!("\u{1b}[38;5;{color}m"))
    })
}

/// The keys of the rows, from top to bottom.
fn order(screen: &str) -> Vec<&str> {
    let names = ["alpha", "beta", "gamma"];
    screen.lines().filter_map(|line| names.into_iter().find(|name| line.starts_with(name))).collect()
}

#[test]
fn keys_sort_and_waiters_are_counted() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // beta is the oldest lock, alpha has the longest time left, gamma has a waiter.
    for (job, ttl) in [("beta", "5m"), ("gamma", "7m"), ("alpha", "9m")] {
        redlock.run(&["acquire", "--ttl", ttl, job]).succeeds();
        // Ages are in milliseconds: wait, so that the next lock is younger.
        eventually("time has passed", SOON, || {
            let held = redlock.run(&["--json", "inspect", job]).succeeds().json()["lock"]["held_ms"].as_u64();
            (held > Some(0)).then_some(())
        });
    }
    fleet[2].connect().call(&["DEL", "beta"]);
    let waiting = redlock.start(&["run", "--wait", "forever", "gamma", "--", "true"]);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("NO_COLOR=1 redlock top --interval 100ms; echo code=$?");
    let screen = tmux.until("by time left");
    assert_eq!(order(&screen), ["beta", "gamma", "alpha"], "{screen}");
    let table = [
        ("n", "by name", ["alpha", "beta", "gamma"]),
        ("a", "by age", ["beta", "gamma", "alpha"]),
        ("l", "by time left", ["beta", "gamma", "alpha"]),
        ("r", "by time left, reversed", ["alpha", "gamma", "beta"]),
        ("n", "by name, reversed", ["gamma", "beta", "alpha"]),
        ("r", "by name   ", ["alpha", "beta", "gamma"]),
    ];
    for (key, footer, expected) in table {
        tmux.letters(key);
        let screen = tmux.until(footer);
        assert_eq!(order(&screen), expected, "{screen}");
    }
    tmux.letters("h");
    let screen = tmux.until("by holders");
    assert_eq!(order(&screen)[0], "beta", "two of three nodes hold beta: {screen}");
    assert!(screen.contains(" 2/3 ") && screen.contains(" 3/3 "), "{screen}");
    tmux.letters("w");
    tmux.until("by waiters");
    let is_counted = |screen: &str| {
        let row = screen.lines().find(|line| line.starts_with("gamma"))?;
        // key, fence, nodes, left, age, waiters, label
        (row.split_whitespace().nth(5) == Some("1")).then_some(())
    };
    let screen = eventually("the waiter is shown", SOON, || {
        let screen = tmux.screen();
        is_counted(&screen)?;
        Some(screen)
    });
    assert_eq!(order(&screen)[0], "gamma", "{screen}");
    assert!(!is_colored(&tmux), "NO_COLOR is set");
    tmux.letters("q");
    tmux.until("code=0");
    waiting.signal(SIGTERM);
    waiting.finish().exits(143);
}

/// Waits until this node has received no request for several intervals: the snapshot waits for another node.
fn until_a_snapshot_hangs(node: &Server) {
    let mut asked = (node.calls("redlock.node"), Instant::now());
    eventually("a snapshot hangs", SOON, || {
        let calls = node.calls("redlock.node");
        if calls != asked.0 {
            asked = (calls, Instant::now());
        }
        (asked.1.elapsed() > Duration::from_millis(500)).then_some(())
    });
}

/// A hung node delays a snapshot up to the node timeout, but neither keys nor signals.
#[test]
fn a_hung_node_delays_neither_keys_nor_signals() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "--ttl", "9m", "alpha"]).succeeds();
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    let file = tmux.path().join("pid");
    let start = |options: &str| {
        let _ = std::fs::remove_file(&file);
        tmux.line(&format!("clear; redlock top {options} & echo $! > pid; fg > /dev/null; echo code=$?"));
        eventually("the shell has written the process id", SOON, || {
            std::fs::read_to_string(&file).ok()?.trim().parse::<u32>().ok()
        })
    };
    for (way, code) in [("q", "code=0"), ("C-c", "code=0"), ("signal", "code=143")] {
        let pid = start("--interval 100ms --node-timeout 10m");
        tmux.until("alpha");
        fleet[0].pause();
        until_a_snapshot_hangs(&fleet[1]);
        tmux.letters("n");
        tmux.until("by name");
        match way {
            "signal" => signal(pid, SIGTERM),
            key => tmux.key(key),
        }
        tmux.until(code);
        assert!(!tmux.is_alternate(), "{way}");
        fleet[0].resume();
    }
    // Nor does it delay a signal during the first snapshot, before the screen opens.
    fleet[0].pause();
    let calls = fleet[1].calls("redlock.node");
    let pid = start("--node-timeout 10m --connect-timeout 10m");
    eventually("the first snapshot has begun", SOON, || {
        (fleet[1].calls("redlock.node") > calls).then_some(())
    });
    signal(pid, SIGINT);
    tmux.until("code=130");
    fleet[0].resume();
}

#[test]
fn a_signal_restores_the_terminal() {
    let fleet = Fleet::start(1);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock top & echo $! > pid; fg > /dev/null; echo code=$?; stty -a | grep -o ' -*icanon'");
    eventually("top has opened its screen", SOON, || tmux.is_alternate().then_some(()));
    let text = eventually("the shell has written the process id", SOON, || {
        std::fs::read_to_string(tmux.path().join("pid")).ok()
    });
    signal(text.trim().parse().expect("a process id"), SIGTERM);
    tmux.until("code=143");
    let screen = tmux.until("icanon");
    assert!(!screen.contains("-icanon"), "{screen}");
    assert!(!tmux.is_alternate());
}
