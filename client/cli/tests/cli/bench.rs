//! `redlock bench`.

use crate::processes::SIGINT;
use crate::program::{Launcher, NO_QUORUM, QUARANTINED, REJECTED, USAGE, names};
use crate::tmux::Tmux;
use redlock_tests::{Fleet, SOON, eventually};

#[test]
fn the_result_has_all_fields_and_no_key_is_left() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    for contended in [&[][..], &["--contended"]] {
        let arguments =
            [&["--json", "--prefix", "mine:", "bench", "--duration", "100ms", "--tasks", "4"], contended];
        let result = redlock.run(&arguments.concat()).succeeds().json();
        let fields = [
            "acquire",
            "contended",
            "cycles",
            "cycles_per_second",
            "duration_ms",
            "failures",
            "nodes",
            "release",
            "tasks",
        ];
        assert_eq!(names(&result), fields);
        for what in ["acquire", "release"] {
            let fields = ["buckets", "max_us", "p50_us", "p90_us", "p999_us", "p99_us"];
            assert_eq!(names(&result[what]), fields);
            let buckets = result[what]["buckets"].as_array().expect("buckets");
            let counts = buckets.iter().map(|bucket| bucket["count"].as_u64().expect("a count"));
            assert_eq!(
                Some(counts.sum()),
                result["cycles"].as_u64(),
                "every cycle counts in one bucket: {result}"
            );
            assert!(buckets.iter().all(|bucket| bucket["up_to_us"].as_u64() > Some(0)), "{result}");
        }
        assert!(result["cycles"].as_u64() > Some(0), "{result}");
        assert_eq!(result["failures"], serde_json::json!({}));
        assert_eq!(result["nodes"][2]["answered"], true);
    }
    for node in fleet.iter() {
        eventually("no key is left", SOON, || {
            (node.connect().call(&["DBSIZE"]) == redlock_tests::Answer::Int(0)).then_some(())
        });
    }
}

#[test]
fn people_get_a_table_and_bars() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    fleet[1].kill();
    let said = redlock.run(&["bench", "--duration", "50ms"]).succeeds();
    assert_eq!(said.stdout.matches("answered").count(), 2, "{said:?}");
    assert!(said.stdout.contains(" 1 caller, each on its own lock"), "{said:?}");
    for word in ["p50", "p99.9", "acquire", "release", "per second"] {
        assert!(said.stdout.contains(word), "{word}: {said:?}");
    }
    assert_eq!(said.stdout.lines().filter(|line| *line == "acquire" || *line == "release").count(), 2);
    let bars = said.stdout.lines().filter(|line| line.starts_with("  up to ") && line.contains("█"));
    assert!(bars.count() >= 2, "the histograms are drawn: {said:?}");
    assert!(said.stderr.is_empty(), "no progress bar without a terminal: {said:?}");
    fleet[2].kill();
    redlock.run(&["bench", "--duration", "50ms"]).exits(NO_QUORUM);
    let error = redlock.run(&["--json", "bench", "--duration", "50ms"]).exits(NO_QUORUM).json_error();
    let answers: Vec<_> =
        error["nodes"].as_array().expect("nodes").iter().map(|node| &node["answer"]).collect();
    let is_down =
        |answer: &&serde_json::Value| answer.as_str().is_some_and(|words| words.starts_with("down"));
    assert_eq!((answers.len(), answers.iter().filter(|answer| is_down(answer)).count()), (3, 2), "{error}");
    redlock.run(&["bench", "--tasks", "0"]).exits(USAGE);
    redlock.run(&["bench", "--tasks", "5000"]).exits(USAGE);
}

#[test]
fn a_signal_ends_it_early_and_the_result_is_printed() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let running = redlock.start(&["--json", "bench", "--duration", "1h"]);
    eventually("the measurement runs", SOON, || (fleet.calls("redlock.release")[0] > 10).then_some(()));
    running.signal(SIGINT);
    assert!(running.finish().succeeds().json()["cycles"].as_u64() > Some(0));
}

#[test]
fn it_fails_if_it_acquired_no_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // No lock can be acquired: the nodes allow only a shorter time to live than bench uses.
    for node in fleet.iter() {
        node.connect().call(&["CONFIG", "SET", "redlock.max-ttl", "1000"]);
    }
    let said = redlock.run(&["--json", "bench", "--duration", "50ms"]).exits(REJECTED);
    let result = said.json();
    assert_eq!(result["cycles"], 0);
    assert!(result["failures"].as_object().is_some_and(|failures| !failures.is_empty()), "{result}");
    for node in fleet.iter() {
        node.connect().call(&["CONFIG", "SET", "redlock.max-ttl", "600000"]);
    }
    // Two of three nodes are in quarantine after a crash: the code is not the one for missing nodes.
    redlock.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet.crash(&[0, 1]);
    let said = redlock.run(&["--json", "bench", "--duration", "50ms"]).exits(QUARANTINED);
    assert_eq!(said.json_error()["reason"], "quarantined");
}

#[test]
fn a_terminal_shows_a_progress_bar_and_then_the_result() {
    let fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock bench --duration 1h; echo code=$?");
    // The bar shows the number of cycles so far.
    assert!(tmux.until("cycles").contains("░"));
    eventually("the measurement runs", SOON, || (fleet.calls("redlock.release")[0] > 10).then_some(()));
    tmux.key("C-c");
    let screen = tmux.until("code=0");
    assert!(screen.contains("acquire") && screen.contains("p99.9"), "{screen}");
    assert!(screen.contains("  up to ") && screen.contains("█"), "{screen}");
    assert!(!screen.contains("░") && !screen.contains("^C"), "the bar and the ^C are gone: {screen}");
    assert!(tmux.has_cursor(), "{screen}");
    // The bar also disappears when the run ends by itself.
    tmux.line("clear; redlock bench --duration 300ms; echo code=$((1 + 6))");
    let screen = tmux.until("code=7");
    assert!(!screen.contains("░") && screen.contains("  up to "), "the bar is gone: {screen}");
}

#[test]
fn ctrl_c_clears_the_bar_if_the_result_goes_to_a_file() {
    let fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    // The result goes to a file, so it does not overwrite the bar.
    tmux.line("redlock bench --duration 1h --tasks 8 >figures; echo code=$?");
    tmux.until("cycles");
    // The terminal also echoes keys that are pressed meanwhile. They do not move the bar.
    tmux.letters("abc");
    let shown = fleet.calls("redlock.release")[0];
    eventually("the measurement continues", SOON, || {
        (fleet.calls("redlock.release")[0] > shown + 1000).then_some(())
    });
    tmux.key("C-c");
    let screen = tmux.until("code=0");
    let mut after = screen.lines().skip_while(|line| !line.contains("redlock bench")).skip(1);
    assert_eq!(after.next().map(str::trim_end), Some("code=0"), "{screen}");
    assert!(tmux.has_cursor(), "{screen}");
}
