//! A node in Cluster mode: keys are routed, several keys of one command share a slot, and nobody is given what another
//! member may give.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, Cluster, SOON, Server, Wire, eventually, granted};

/// A cluster of one node that serves every slot.
fn start() -> Server {
    with_every_slot(Server::builder().cluster().start())
}

fn with_every_slot(server: Server) -> Server {
    assert_eq!(server.connect().call_strs("CLUSTER ADDSLOTSRANGE 0 16383"), Answer::ok());
    eventually("the cluster serves all slots", SOON, || {
        let state = server.connect().call_strs("CLUSTER INFO").string();
        state.contains("cluster_state:ok").then_some(())
    });
    server
}

#[test]
fn commands_work_on_a_cluster_node() {
    let server = start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000 FENCE 7"), Answer::Int(7));
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 60000"), Answer::Int(7));
    assert_eq!(wire.inspect("lock").map(|lock| lock.fence), Some(7));
    assert_eq!(wire.call_strs("REDLOCK.NODE").field("locks"), Some(&Answer::Int(1)));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
}

#[test]
fn several_keys_must_share_a_slot() {
    let server = start();
    let mut wire = server.connect();
    for line in
        ["REDLOCK.MACQUIRE 2 a b me 60000", "REDLOCK.MEXTEND 2 a b me 60000", "REDLOCK.MRELEASE 2 a b me"]
    {
        assert_eq!(wire.call_strs(line).error_word(), Some("CROSSSLOT"), "{line}");
    }
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0));
    assert!(matches!(wire.call_strs("REDLOCK.MACQUIRE 2 {job}a {job}b me 60000"), Answer::Int(1..)));
    assert_eq!(wire.call_strs("REDLOCK.MRELEASE 2 {job}a {job}b me"), Answer::Int(1));
}

#[test]
fn locks_are_counted_in_their_slot() {
    let server = start();
    let mut wire = server.connect();
    assert!(matches!(wire.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(1..)));
    let slot = wire.call_strs("CLUSTER KEYSLOT lock").int();
    assert_eq!(wire.call_strs(&format!("CLUSTER COUNTKEYSINSLOT {slot}")), Answer::Int(1));
    assert_eq!(wire.call_strs("CLUSTER DELSLOTSRANGE 0 16383"), Answer::ok());
    let answer = wire.call_strs("REDLOCK.ACQUIRE lock me 60000");
    assert_eq!(answer.error_word(), Some("CLUSTERDOWN"), "a slot that is not served: {answer:?}");
}

fn number(server: &Server, field: &str) -> u64 {
    let value = server.info("redlock", &format!("redlock_{field}")).expect(field);
    value.parse().expect("a number")
}

fn until_waiting(server: &Server, count: u64) {
    let is_so = || (number(server, "waiters") == count).then_some(());
    eventually(&format!("{count} wait"), SOON, is_so);
}

/// Somebody who waits at a member for some keys that others hold.
fn in_line(member: &Server, keys: &[&str]) -> Wire {
    let mut wire = member.connect();
    let count = keys.len().to_string();
    let words = ["REDLOCK.MACQUIRE", &count].into_iter().chain(keys.iter().copied());
    let tail = ["patient", "60000", "WAIT", "1", "60000", "me"];
    let said = wire.call(&words.chain(tail).collect::<Vec<_>>());
    assert!(matches!(said, Answer::List(_)), "{said:?}");
    until_waiting(member, 1);
    wire
}

#[test]
fn whoever_waits_is_served_as_long_as_the_slot_is_here() {
    let server = start();
    let (mut holder, mut news) = (server.connect(), server.connect());
    news.call_strs("SUBSCRIBE redlock:grant:me");
    let ends = [("one", "REDLOCK.RELEASE one first"), ("two", "DEL two"), ("plain", "PEXPIRE plain 1")];
    for (key, end) in ends {
        match key {
            "plain" => assert_eq!(holder.call_strs("SET plain theirs NX PX 600000"), Answer::ok()),
            _ => assert!(granted(&holder.call_strs(&format!("REDLOCK.ACQUIRE {key} first 60000"))) > 0),
        }
        let mut waiter = in_line(&server, &[key]);
        assert_eq!(holder.call_strs(end), Answer::Int(1));
        let told = news.receive().expect("a message");
        assert!(told.list()[2].string().starts_with("grant 1 "), "{end}: {told:?}");
        waiter.call_strs(&format!("REDLOCK.RELEASE {key} patient"));
    }
    assert_eq!((number(&server, "handoffs"), number(&server, "waiters")), (3, 0));
    // What is looked at for that is left as it is.
    assert_eq!(holder.call_strs("DBSIZE"), Answer::Int(0));
}

#[test]
fn whoever_waits_is_served_where_the_command_that_asks_for_the_slot_has_no_name() {
    let builder = Server::builder().cluster().arg("rename-command", "SETRANGE \"\"");
    let server = with_every_slot(builder.start());
    let mut holder = server.connect();
    let unknown = holder.call_strs("SETRANGE lock 0 x");
    assert_eq!(unknown.error_word(), Some("ERR"), "{unknown:?}");
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE lock first 60000")) > 0);
    let _waiter = in_line(&server, &["lock"]);
    assert_eq!(holder.call_strs("REDLOCK.RELEASE lock first"), Answer::Int(1));
    until_waiting(&server, 0);
    assert_eq!(number(&server, "handoffs"), 1);
}

#[test]
fn a_line_is_sent_away_to_the_last_however_long_it_is() {
    let cluster = Cluster::start(2);
    let key = cluster.key(0, "lock");
    let mut holder = cluster[0].connect();
    assert!(granted(&holder.call(&["REDLOCK.ACQUIRE", &key, "first", "60000"])) > 0);
    // Several times as many as are looked at in one go.
    let mut crowd = cluster[0].connect();
    for number in 0..500 {
        let owner = format!("patient{number}");
        let said = crowd.call(&["REDLOCK.ACQUIRE", &key, &owner, "60000", "WAIT", "1", "60000", "me"]);
        assert!(matches!(said, Answer::List(_)), "{said:?}");
    }
    until_waiting(&cluster[0], 500);
    cluster.announce_move(&key, 0, 1);
    assert_eq!(holder.call(&["REDLOCK.RELEASE", &key, "first"]), Answer::Int(1));
    until_waiting(&cluster[0], 0);
    assert_eq!(number(&cluster[0], "handoffs"), 0);
}

#[test]
fn nobody_is_served_where_the_slot_is_on_its_way() {
    for end in ["DEL", "REDLOCK.RELEASE"] {
        let cluster = Cluster::start(2);
        let key = cluster.key(0, "lock");
        let (mut holder, mut other) = (cluster[0].connect(), cluster[1].connect());
        assert!(granted(&holder.call(&["REDLOCK.ACQUIRE", &key, "first", "60000"])) > 0);
        let _waiter = in_line(&cluster[0], &[&key]);
        cluster.announce_move(&key, 0, 1);
        let words = [end, &key, "first"];
        let words = if end == "DEL" { &words[..2] } else { &words[..] };
        assert_eq!(holder.call(words), Answer::Int(1));
        until_waiting(&cluster[0], 0);
        assert_eq!(number(&cluster[0], "handoffs"), 0, "{end}");
        // Those who ask are told to ask there, and there it is granted.
        let refused = holder.call(&["REDLOCK.ACQUIRE", &key, "newcomer", "60000"]);
        assert_eq!(refused.error_word(), Some("ASK"), "{end}: {refused:?}");
        assert_eq!(other.call_strs("ASKING"), Answer::ok());
        assert!(granted(&other.call(&["REDLOCK.ACQUIRE", &key, "newcomer", "60000"])) > 0, "{end}");
    }
}

#[test]
fn several_keys_are_waited_for_in_a_slot_that_is_all_here() {
    let cluster = Cluster::start(2);
    let tag = cluster.key(0, "job");
    let keys = ["x", "y"].map(|name| format!("{{{tag}}}:{name}"));
    let mut holder = cluster[0].connect();
    for key in &keys {
        assert!(granted(&holder.call(&["REDLOCK.ACQUIRE", key, "first", "60000"])) > 0);
    }
    let _waiter = in_line(&cluster[0], &[&keys[0], &keys[1]]);
    cluster.announce_move(&tag, 0, 1);
    // One is held here, and the other may be granted there.
    assert_eq!(holder.call(&["DEL", &keys[1]]), Answer::Int(1));
    until_waiting(&cluster[0], 0);
    assert_eq!(number(&cluster[0], "handoffs"), 0);
}

#[test]
fn nobody_is_served_where_the_slot_was_taken_away() {
    let cluster = Cluster::start(2);
    let key = cluster.key(0, "lock");
    let (mut holder, mut other) = (cluster[0].connect(), cluster[1].connect());
    assert!(granted(&holder.call(&["REDLOCK.ACQUIRE", &key, "first", "60000"])) > 0);
    let _waiter = in_line(&cluster[0], &[&key]);
    cluster.seize(&key, 1);
    // The server throws away what is not its own any more, and says so as of any key that is deleted.
    until_waiting(&cluster[0], 0);
    assert_eq!(number(&cluster[0], "handoffs"), 0);
    assert!(granted(&other.call(&["REDLOCK.ACQUIRE", &key, "newcomer", "60000"])) > 0);
}
