//! A node in Cluster mode: keys are routed, and several keys of one command share a slot.

use redlock_tests::{Answer, SOON, Server, eventually};

/// A cluster of one node that serves every slot.
fn start() -> Server {
    let server = Server::builder().cluster().start();
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
