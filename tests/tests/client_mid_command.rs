//! Faults in the middle of a command: nodes restart, connections end, replies are invalid.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, until_all_answer, until_held};
use redlock_client::{Error, FailureKind, LostReason, ReleaseOutcome, Vote};
use redlock_tests::{CommandFault, Fleet, SOON, Server, eventually_async, in_time};

const ACQUIRE: &str = "REDLOCK.ACQUIRE";
const EXTEND: &str = "REDLOCK.EXTEND";
const RELEASE: &str = "REDLOCK.RELEASE";

/// Node sets: two minorities and a majority of five nodes.
const ONE: &[usize] = &[3];
const TWO: &[usize] = &[0, 3];
const THREE: &[usize] = &[0, 3, 4];

impl Network {
    fn inject_at(&self, nodes: &[usize], command: &str, fault: CommandFault) {
        nodes.iter().for_each(|node| self.proxies[*node].inject(command, fault));
    }

    async fn until_hit(&self, nodes: &[usize]) {
        for node in nodes {
            self.proxies[*node].until_hit().await;
        }
    }
}

/// A fault that hits a node while a command is in flight to it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The node crashes and restarts.
    Crash,
    /// The node is shut down and restarts.
    Restart,
    /// An administrator closes its client connections.
    KillClients,
    /// The node crashes and stays down.
    Death,
}

impl Fault {
    fn inject(self, network: &mut Network, nodes: &[usize]) {
        for node in nodes {
            let node = &mut network.fleet[*node];
            match self {
                Self::Crash => {
                    node.kill();
                    node.restart();
                }
                Self::Restart => node.restart(),
                Self::KillClients => kill_clients(node),
                Self::Death => node.kill(),
            }
        }
    }

    /// Whether the node forgets its locks. These nodes save nothing, so a restart loses every lock.
    fn forgets(self) -> bool {
        !matches!(self, Self::KillClients)
    }
}

const FAULTS: [Fault; 3] = [Fault::Crash, Fault::Restart, Fault::KillClients];

fn kill_clients(node: &Server) {
    assert!(node.kill_clients() > 0, "a client was connected");
}

#[tokio::test]
async fn an_acquire_survives_a_fault_during_its_command() {
    for fault in FAULTS {
        let mut network = Network::without_grace(5);
        let manager = network.manager().await;
        for few in [ONE, TWO] {
            until_all_answer(&manager).await;
            network.inject_at(few, ACQUIRE, CommandFault::Hold);
            let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
            let guard = guard.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            network.until_hit(few).await;
            fault.inject(&mut network, few);
            network.let_go();
            let report = in_time("a release ends", SOON, guard.release()).await;
            assert!(report.is_free_on_a_majority(), "{fault:?}: {report}");
            network.until_free("lock").await;
        }

        // All three nodes must get the request at the same time. Otherwise the client could give up the first
        // connection before the fault hits it.
        until_all_answer(&manager).await;
        network.inject_at(THREE, ACQUIRE, CommandFault::Hold);
        let acquire = tokio::spawn({
            let manager = manager.clone();
            async move { manager.acquire("lock", TTL).await }
        });
        network.until_hit(THREE).await;
        fault.inject(&mut network, THREE);
        network.let_go();
        let guard = in_time("the client retries", SOON, acquire).await.expect("no panic");
        let guard = guard.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(guard.is_valid());
        drop(guard);
        network.until_free("lock").await;
    }
}

#[tokio::test]
async fn an_extension_survives_faults_of_a_minority_only() {
    for fault in FAULTS {
        let mut network = Network::without_grace(5);
        let manager = network.manager().await;
        for few in [ONE, TWO] {
            let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
            network.inject_at(few, EXTEND, CommandFault::Hold);
            in_time("an extension ends", SOON, guard.extend()).await.expect("three of five nodes are enough");
            network.until_hit(few).await;
            fault.inject(&mut network, few);
            network.let_go();
            in_time("an extension ends", SOON, guard.extend()).await.expect("three of five nodes are enough");
            assert!(in_time("a release ends", SOON, guard.release()).await.is_free_on_a_majority());
            until_all_answer(&manager).await;
            network.until_free("lock").await;
        }

        let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
        let fence = guard.fence();
        network.inject_at(THREE, EXTEND, CommandFault::Hold);
        let extended = {
            let inject = async {
                network.until_hit(THREE).await;
                fault.inject(&mut network, THREE);
                network.let_go();
            };
            in_time("an extension ends", SOON, async { tokio::join!(guard.extend(), inject).0 }).await
        };
        let error = extended.expect_err("two of five nodes are not a majority");
        assert!(matches!(error, Error::NoQuorum(_)), "{fault:?}: {error:?}");
        assert!(guard.is_valid(), "the lease that was granted before the fault lasts");
        until_all_answer(&manager).await;
        let again = in_time("an extension ends", SOON, guard.extend()).await;
        if fault.forgets() {
            let error = again.expect_err("a majority has forgotten the lock");
            assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{fault:?}: {error:?}");
            assert_eq!(in_time("the guard reports the loss", SOON, guard.lost()).await, LostReason::Gone);
        } else {
            again.expect("every node holds the lock");
            assert_eq!(guard.fence(), fence);
        }
        drop(guard);
        network.until_free("lock").await;
    }
}

#[tokio::test]
async fn after_a_fault_during_a_release_no_node_keeps_the_lock() {
    for fault in FAULTS {
        for nodes in [ONE, TWO, THREE] {
            let mut network = Network::without_grace(5);
            inject_during_a_release(&mut network, nodes, fault).await;
            // If the nodes did not forget the lock, the client sends the release again over a new connection.
            network.until_free("lock").await;
        }
    }
}

async fn inject_during_a_release(network: &mut Network, nodes: &[usize], fault: Fault) {
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    until_held(network.fleet.iter(), "lock").await;
    network.inject_at(nodes, RELEASE, CommandFault::Hold);
    let release = tokio::spawn(guard.release());
    network.until_hit(nodes).await;
    fault.inject(network, nodes);
    network.let_go();
    let report = in_time("a release ends", SOON, release).await.expect("no panic");
    assert!(report.was_held());
    assert_eq!(report.is_free_on_a_majority(), nodes.len() < 3, "{fault:?}: {report}");
}

#[tokio::test]
async fn living_nodes_free_a_lock_when_others_die_during_its_release() {
    for nodes in [ONE, TWO, THREE] {
        let mut network = Network::without_grace(5);
        inject_during_a_release(&mut network, nodes, Fault::Death).await;
        let living: Vec<usize> = (0..5).filter(|node| !nodes.contains(node)).collect();
        eventually_async("the living nodes have freed the lock", SOON, async || {
            let holds = |node: &usize| network.fleet[*node].connect().inspect("lock").is_some();
            (!living.iter().any(holds)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_restarts_with_its_lock_gets_the_pending_release() {
    let persistent = |_, node: redlock_tests::ServerBuilder| {
        node.arg("appendonly", "yes").arg("appendfsync", "always").module_args(["restart-grace", "off"])
    };
    for fault in [Fault::Crash, Fault::Restart] {
        let mut network = Network::with_proxies(Fleet::start_with(5, persistent));
        inject_during_a_release(&mut network, ONE, fault).await;
        // The control: the node has kept the lock, and for the next ten minutes only the client frees it.
        let freed = || network.fleet[ONE[0]].info("redlock", "redlock_releases");
        let released = async || (freed().as_deref() == Some("1")).then_some(());
        eventually_async("the node frees the lock that it kept", SOON, released).await;
        network.until_free("lock").await;
    }
}

/// The ways in which a connection can end during a command.
const CUTS: [CommandFault; 3] = [CommandFault::CutBefore, CommandFault::CutInside, CommandFault::DropReply];

#[tokio::test]
async fn an_acquire_tolerates_cut_connections_of_a_minority_only() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for cut in CUTS {
        for few in [ONE, TWO] {
            network.inject_at(few, ACQUIRE, cut);
            let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
            let guard = guard.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            network.until_hit(few).await;
            drop(guard);
            network.until_free("lock").await;
            until_all_answer(&manager).await;
        }

        network.inject_at(THREE, ACQUIRE, cut);
        let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let error = refused.expect_err("two of five nodes are not a majority");
        assert!(matches!(error, Error::NoQuorum(_)), "{cut:?}: {error:?}");
        let was_cut = |vote: &Vote| matches!(vote, Vote::Failed(why) if why.kind == FailureKind::Cut);
        assert!(THREE.iter().all(|node| was_cut(&error.nodes()[*node].vote)), "{cut:?}: {error}");
        network.until_free("lock").await;
        until_all_answer(&manager).await;
    }
}

#[tokio::test]
async fn an_extension_tolerates_cut_connections_of_a_minority_only() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    let fence = guard.fence();
    for cut in CUTS {
        for few in [ONE, TWO] {
            network.inject_at(few, EXTEND, cut);
            in_time("an extension ends", SOON, guard.extend()).await.expect("three of five nodes are enough");
            network.until_hit(few).await;
            until_all_answer(&manager).await;
        }

        network.inject_at(THREE, EXTEND, cut);
        let refused = in_time("an extension ends", SOON, guard.extend()).await;
        assert!(matches!(refused, Err(Error::NoQuorum(_))), "{cut:?}: {refused:?}");
        assert!(guard.is_valid());
        until_all_answer(&manager).await;
        in_time("an extension ends", SOON, guard.extend())
            .await
            .expect("the client has reconnected to every node");
    }
    assert_eq!(guard.fence(), fence);
    assert!(in_time("a release ends", SOON, guard.release()).await.is_free_on_a_majority());
    network.until_free("lock").await;
}

#[tokio::test]
async fn a_release_is_sent_again_after_its_connection_is_cut() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for cut in CUTS {
        for nodes in [ONE, TWO, THREE] {
            let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
            network.inject_at(nodes, RELEASE, cut);
            let report = in_time("a release ends", SOON, guard.release()).await;
            assert_eq!(report.is_free_on_a_majority(), nodes.len() < 3, "{cut:?}: {report}");
            if nodes.len() == 3 {
                let failed =
                    |node: &usize| matches!(report.nodes()[*node].outcome, ReleaseOutcome::Failed(_));
                assert!(nodes.iter().all(failed), "{cut:?}: {report}");
            }
            network.until_hit(nodes).await;
            // The client sends the pending release as soon as it is connected again.
            network.until_free("lock").await;
            until_all_answer(&manager).await;
        }
    }
}

#[tokio::test]
async fn commands_of_several_keys_tolerate_cut_connections_of_a_minority_only() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for cut in CUTS {
        network.inject_at(TWO, "REDLOCK.MACQUIRE", cut);
        let guard = in_time("an acquire ends", SOON, manager.try_acquire_many(["a", "b"], TTL)).await;
        let guard = guard.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        network.until_hit(TWO).await;
        until_all_answer(&manager).await;

        let fence = guard.fence();
        network.inject_at(ONE, "REDLOCK.MEXTEND", cut);
        in_time("an extension ends", SOON, guard.extend()).await.expect("three of five nodes are enough");
        assert_eq!(guard.fence(), fence);

        network.inject_at(&[1], "REDLOCK.MRELEASE", cut);
        let report = in_time("a release ends", SOON, guard.release()).await;
        assert!(report.was_held(), "{cut:?}: {report}");
        for key in ["a", "b"] {
            network.until_free(key).await;
        }
        until_all_answer(&manager).await;

        network.inject_at(THREE, "REDLOCK.MACQUIRE", cut);
        let refused = in_time("an acquire ends", SOON, manager.try_acquire_many(["a", "b"], TTL)).await;
        assert!(matches!(refused, Err(Error::NoQuorum(_))), "{cut:?}: {refused:?}");
        for key in ["a", "b"] {
            network.until_free(key).await;
        }
        until_all_answer(&manager).await;
    }
}

#[tokio::test]
async fn peers_3_an_acquire_is_not_voted_down_by_what_its_last_attempt_left_behind() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    // Three nodes grant and their replies are lost: the first attempt fails and leaves a lock on every node.
    network.inject_at(THREE, ACQUIRE, CommandFault::DropReply);
    let guard = in_time("the next attempt ends", SOON, manager.acquire("lock", TTL)).await;
    let guard = guard.expect("no other client wants the lock");
    network.until_hit(THREE).await;
    let retried = network.fleet.calls("redlock.acquire").iter().filter(|calls| **calls >= 2).count();
    assert!(retried >= 3, "three nodes get a second acquire: {retried}");
    drop(guard);
    network.until_free("lock").await;
}

/// Replies that a node never sends to an acquire.
const INVALID: [&str; 13] = [
    "nonsense\r\n",
    "\r\n",
    ":\r\n",
    ":twelve\r\n",
    ":-1\r\n",
    ":0\r\n",
    ":99999999999999999999\r\n",
    "+OK\r\n",
    "$2\r\n17\r\n",
    "*1\r\n:17\r\n",
    "%1\r\n+fence\r\n:17\r\n",
    "$99999999999\r\n",
    "*1000000000\r\n",
];

#[tokio::test]
async fn invalid_replies_are_not_votes() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for reply in INVALID {
        until_all_answer(&manager).await;
        TWO.iter().for_each(|node| network.proxies[*node].forge_reply(ACQUIRE, reply));
        let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let guard = guard.unwrap_or_else(|error| panic!("{reply:?} of two nodes: {error}"));
        assert!(guard.fence() > 0, "{reply:?}");
        drop(guard);
        network.until_free("lock").await;

        until_all_answer(&manager).await;
        THREE.iter().for_each(|node| network.proxies[*node].forge_reply(ACQUIRE, reply));
        let outcome = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let error = outcome.map(|guard| guard.fence()).expect_err(reply);
        assert!(matches!(error, Error::NoQuorum(_)), "{reply:?} of three nodes: {error:?}");
        network.until_free("lock").await;
        network.proxies.iter().for_each(redlock_tests::Proxy::clear_faults);
    }
}

#[tokio::test]
async fn invalid_errors_are_not_votes() {
    // An error means that the node changed nothing. The forged errors hide a grant, so the test deletes the locks.
    let network = Network::start(5);
    let manager = network.manager().await;
    let break_locks = || network.fleet.iter().for_each(|node| drop(node.connect().call_strs("DEL lock")));
    for error in ["-\r\n", "-REDLOCKQUARANTINE soon\r\n", "-\u{fffd}\r\n", "!5\r\nERR x\r\n"] {
        TWO.iter().for_each(|node| network.proxies[*node].forge_reply(ACQUIRE, error));
        let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        assert!(guard.unwrap_or_else(|failure| panic!("{error:?} of two nodes: {failure}")).is_valid());
        break_locks();
        THREE.iter().for_each(|node| network.proxies[*node].forge_reply(ACQUIRE, error));
        let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let is_told = matches!(refused, Err(Error::NoQuorum(_) | Error::Rejected(_)));
        assert!(is_told, "{error:?} of three nodes: {refused:?}");
        network.proxies.iter().for_each(redlock_tests::Proxy::clear_faults);
        break_locks();
    }
}

#[tokio::test]
async fn one_node_with_an_absurd_fence_does_no_harm() {
    for absurd in [i64::MAX, i64::MAX - 1, 1 << 40] {
        let mut network = Network::start(5);
        let manager = network.manager().await;
        network.proxies[2].forge_reply(ACQUIRE, format!(":{absurd}\r\n"));
        let mut last = 0;
        for round in 0..4 {
            let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
            let guard = guard.unwrap_or_else(|error| panic!("{absurd}, round {round}: {error}"));
            assert!(guard.fence() > last, "fence {} after {last}", guard.fence());
            last = guard.fence();
            assert!(guard.release().await.is_free_on_a_majority());
            if round == 1 {
                network.proxies[2].clear_faults();
            }
        }
        network.until_free("lock").await;
    }
}

#[tokio::test]
async fn a_fence_that_the_other_nodes_cannot_reach_fails_the_acquire() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for node in [3, 4] {
        network.fleet[node].kill();
    }
    network.proxies[2].forge_reply(ACQUIRE, format!(":{}\r\n", i64::MAX));
    let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
    let error = refused.expect_err("no three nodes agree on one fence");
    assert!(matches!(error, Error::FencesApart { .. }), "{error:?}");
    assert!(error.to_string().contains("are far apart, from 1 to 9223372036854775807"), "{error}");
    network.proxies[2].clear_faults();
    network.until_free("lock").await;
}

#[tokio::test]
async fn a_node_with_an_invalid_greeting_is_not_used() {
    let network = Network::start(3);
    network.proxies[0].forge_reply("REDLOCK.NODE", ":1\r\n");
    let manager = client::manager(network.urls());
    let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
    assert!(guard.expect("two of three nodes are enough").is_valid());
    network.proxies[0].clear_faults();
    let repaired = async || {
        let health = manager.health().await.expect("a runtime");
        health.nodes[0].can_grant().then_some(())
    };
    eventually_async("the client uses the node once its greeting is valid", SOON, repaired).await;
}
