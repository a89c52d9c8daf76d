//! bench.

use crate::processes::SIGINT;
use crate::program::{Desk, NO_QUORUM, USAGE, names};
use redlock_tests::{Fleet, SOON, eventually};

#[test]
fn figures_are_told_and_nothing_is_left() {
    let fleet = Fleet::start(3);
    let desk = Desk::of(&fleet);
    for contended in [&[][..], &["--contended"]] {
        let arguments =
            [&["--json", "--prefix", "mine:", "bench", "--duration", "100ms", "--tasks", "4"], contended];
        let result = desk.run(&arguments.concat()).succeeds().json();
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
        assert_eq!(names(&result["acquire"]), ["max_us", "p50_us", "p90_us", "p999_us", "p99_us"]);
        assert!(result["cycles"].as_u64() > Some(0), "{result}");
        assert_eq!(result["failures"], serde_json::json!({}));
        assert_eq!(result["nodes"][2]["answered"], true);
    }
    for node in fleet.iter() {
        eventually("nothing is left", SOON, || {
            (node.connect().call(&["DBSIZE"]) == redlock_tests::Answer::Int(0)).then_some(())
        });
    }
}

#[test]
fn people_get_a_table() {
    let mut fleet = Fleet::start(3);
    let desk = Desk::of(&fleet);
    fleet[1].kill();
    let said = desk.run(&["bench", "--duration", "50ms"]).succeeds();
    assert_eq!(said.stdout.matches("answered").count(), 2, "{said:?}");
    for word in ["p50", "p99.9", "acquire", "release", "per second"] {
        assert!(said.stdout.contains(word), "{word}: {said:?}");
    }
    assert!(said.stderr.is_empty(), "no bar without a terminal: {said:?}");
    fleet[2].kill();
    desk.run(&["bench", "--duration", "50ms"]).exits(NO_QUORUM);
    desk.run(&["bench", "--tasks", "0"]).exits(USAGE);
    desk.run(&["bench", "--tasks", "5000"]).exits(USAGE);
}

#[test]
fn it_can_be_ended_early() {
    let fleet = Fleet::start(1);
    let desk = Desk::of(&fleet);
    let running = desk.start(&["--json", "bench", "--duration", "1h"]);
    eventually("it is under way", SOON, || (fleet.calls("redlock.release")[0] > 10).then_some(()));
    running.signal(SIGINT);
    assert!(running.finish().succeeds().json()["cycles"].as_u64() > Some(0));
}
