//! A faulty network between several client processes and five nodes. Every process has its own proxies, so that a
//! test can cut off one process alone.

use redlock_tests::campaign::{Campaign, LockMethod, Validity, Violation, Workload, now_ns};
use redlock_tests::{Direction, Fleet, Proxy};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// A name, and a fault of one proxy.
type Fault = (&'static str, fn(&Proxy));

/// With each of these faults, the client gets no valid reply from the node.
const CUTS: [Fault; 8] = [
    ("refused", Proxy::refuse_connections),
    ("closed at once", Proxy::close_new_connections),
    ("requests lost", |way| way.drop_bytes(Direction::ToServer)),
    ("replies lost", |way| way.drop_bytes(Direction::ToClient)),
    ("both lost", |way| {
        way.drop_bytes(Direction::ToServer);
        way.drop_bytes(Direction::ToClient);
    }),
    // The proxy delivers held bytes in the end, long after the client has given up.
    ("requests held", |way| way.hold(Direction::ToServer)),
    ("replies held", |way| way.hold(Direction::ToClient)),
    // Pushes are dropped, too: the grant that a node pushes to a waiter is valid, whatever the reply was.
    ("garbage", |way| {
        way.drop_pushes();
        way.forge_reply("REDLOCK.ACQUIRE", *b"*2\r\n:1\r\n$3\r\nyes\r\n");
    }),
];

/// Five nodes, and for every client process a proxy in front of each node.
struct Network {
    fleet: Fleet,
    ways: Vec<Vec<Proxy>>,
}

impl Network {
    fn start(fleet: Fleet) -> Self {
        let ways = (0..3).map(|_| fleet.iter().map(Proxy::to).collect()).collect();
        Self { fleet, ways }
    }

    fn campaign(&self, work: Workload) -> Campaign {
        let urls: Vec<Vec<String>> =
            self.ways.iter().map(|ways| ways.iter().map(Proxy::url).collect()).collect();
        Campaign::start_with_routes(CONTENDER, &urls, work)
    }

    /// The proxies of all processes to one node.
    fn to(&self, node: usize) -> impl Iterator<Item = &Proxy> {
        self.ways.iter().map(move |ways| &ways[node])
    }

    fn heal(&self) {
        self.ways.iter().flatten().for_each(Proxy::clear_faults);
    }
}

#[test]
fn nodes_of_a_minority_cannot_be_reached() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (round, (_, cut)) in CUTS.iter().enumerate() {
        for node in [round % 5, (round + 2) % 5] {
            network.to(node).for_each(cut);
        }
        campaign.count_fault();
        campaign.wait_for_holds_by_each(3);
        network.heal();
        campaign.wait_for_holds_by_each(1);
    }
    campaign.finish(&network.fleet).assert_clean("a minority out of reach");
}

/// Bytes are lost for so short a time that the client still uses the connection when the network is well again. With a
/// proxy that then delivered further bytes of that connection, the client matched replies to other requests.
#[test]
fn bytes_are_lost_for_moments() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload::default());
    campaign.wait_for_holds_by_each(3);
    for round in 0..40 {
        let lost = if round % 2 == 0 { Direction::ToClient } else { Direction::ToServer };
        for node in [round % 5, (round + 2) % 5] {
            network.to(node).for_each(|way| way.drop_bytes(lost));
        }
        campaign.count_fault();
        campaign.wait_for_holds(1);
        network.heal();
        campaign.wait_for_holds(1);
    }
    campaign.wait_for_holds_by_each(1);
    campaign.finish(&network.fleet).assert_clean("bytes lost for moments");
}

#[test]
fn one_process_cannot_reach_a_majority() {
    let network = Network::start(Fleet::start(5));
    // One lock at a time: the proxy forges the reply of one command only.
    let mut campaign = network.campaign(Workload { at_once: 1, ..Workload::default() });
    campaign.wait_for_holds_by_each(3);
    for (round, (name, cut)) in CUTS.iter().enumerate() {
        let alone = round % 3;
        let process = alone as u64;
        for node in 0..3 {
            cut(&network.ways[alone][(round + node) % 5]);
        }
        let cut_ns = now_ns();
        campaign.count_fault();
        campaign.wait_for_failures(Some(process), 3);
        for other in (0..3).filter(|other| *other != process) {
            campaign.wait_for_holds_by(other, 3);
        }
        let in_vain = campaign.holds_between(process, cut_ns, now_ns());
        assert_eq!(in_vain, 0, "{name}: two nodes of five are no majority, yet the process held a lock");
        network.heal();
        campaign.wait_for_holds_by(process, 1);
    }
    campaign.finish(&network.fleet).assert_clean("a majority out of reach of one process");
}

/// If two votes of five are enough, each side of a partition has its own holder.
#[test]
fn control_locks_of_two_votes_on_both_sides_of_a_cut() {
    let network = Network::start(Fleet::start_with(5, |_, node| node.without_module()));
    let lock = LockMethod::Plain { votes: 2, validity: Validity::FromRequest };
    let mut campaign = network.campaign(Workload { lock, ..Workload::default() });
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds_by_each(1);
        for node in 0..5 {
            let cut_off = if node < 2 { &network.ways[1..] } else { &network.ways[..1] };
            cut_off.iter().for_each(|ways| ways[node].refuse_connections());
        }
        campaign.wait_for_holds_by_each(10);
        network.heal();
    });
}

/// The client believes a forged grant, and the checks detect that. So they would detect garbage that the client
/// counts as a grant.
#[test]
fn control_replies_that_look_like_grants() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload { at_once: 1, ..Workload::default() });
    campaign.wait_for_holds_by_each(1);
    for node in 0..3 {
        network.to(node).for_each(|way| way.forge_reply("REDLOCK.ACQUIRE", *b":1000000\r\n"));
    }
    let is_seen = |violation: &Violation| {
        matches!(violation, Violation::Overlap { .. } | Violation::FenceRepeated { .. })
    };
    campaign.inject_until_violation(is_seen, |campaign| campaign.wait_for_holds(5));
}

#[test]
fn connections_are_reset_and_clients_killed_all_the_time() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload::default());
    for round in 0..40 {
        campaign.wait_for_holds(5);
        let node = round % 5;
        if round % 2 == 0 {
            network.to(node).for_each(Proxy::cut);
        } else {
            // The node closes all connections except the one that sent the command.
            network.fleet[node].kill_clients();
        }
        campaign.count_fault();
    }
    campaign.wait_for_holds_by_each(3);
    campaign.finish(&network.fleet).assert_clean("resets and CLIENT KILL");
}

/// Delays every proxy. Three of five nodes answer after 25 ms at the latest.
fn slow_down(network: &Network, campaign: &Campaign) {
    for (node, ms) in [(0, 60), (1, 200), (2, 5), (3, 15), (4, 25)] {
        for way in network.to(node) {
            way.delay(Direction::ToServer, Duration::from_millis(ms / 2));
            way.delay(Direction::ToClient, Duration::from_millis(ms / 2));
        }
        campaign.count_fault();
    }
}

#[test]
fn all_links_are_slow() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload::default());
    slow_down(&network, &campaign);
    assert!(campaign.all_make_progress(20), "every client must get locks: {}", campaign.summary());
    network.heal();
    campaign.wait_for_holds_by_each(5);
    campaign.finish(&network.fleet).assert_clean("slow links");
}

/// A client that gives a node 10 ms to answer gets no majority over these links.
#[test]
fn control_short_timeouts_on_slow_links() {
    let network = Network::start(Fleet::start(5));
    let mut campaign = network.campaign(Workload { lock: LockMethod::ShortTimeout, ..Workload::default() });
    campaign.wait_for_holds(3);
    slow_down(&network, &campaign);
    // Requests that were sent before may still be granted.
    campaign.wait_for_attempts(9);
    assert!(!campaign.all_make_progress(20), "the checks detect nothing: {}", campaign.summary());
    println!("control: {}, and a client gets no lock any more", campaign.summary());
}
