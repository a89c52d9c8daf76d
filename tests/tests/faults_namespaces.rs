//! Five nodes and three clients, each in its own network namespace: unplugged links, packets that pass in one
//! direction only, links with too little bandwidth.

use redlock_tests::campaign::{
    Campaign, Host, LockMethod, Validity, Violation, VirtualNetwork, Workload, now_ns,
};
use redlock_tests::{SOON, Server, ServerBuilder, eventually, skip};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// Five hosts with a node each, and three with a client each.
struct Hosts {
    nodes: Vec<Server>,
    internet: VirtualNetwork,
}

impl Hosts {
    fn start(describe: impl Fn(ServerBuilder) -> ServerBuilder) -> Option<Self> {
        let Some(internet) = VirtualNetwork::create(8) else {
            skip("the test cannot create network namespaces (needs root, `ip` and `nsenter`)");
            return None;
        };
        let server = std::env::var("REDLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        let node = |host: &Host| {
            let builder = describe(Server::builder()).binary(host.program(&server));
            builder.arg("bind", host.address()).arg("port", "6379").arg("protected-mode", "no").start()
        };
        let nodes = internet.hosts[..5].iter().map(node).collect();
        Some(Self { nodes, internet })
    }

    fn node_host(&self, node: usize) -> &Host {
        &self.internet.hosts[node]
    }

    fn client_host(&self, client: usize) -> &Host {
        &self.internet.hosts[5 + client]
    }

    fn campaign(&self, work: Workload) -> Campaign {
        let urls: Vec<String> =
            (0..5).map(|node| format!("redis://{}:6379", self.node_host(node).address())).collect();
        let mut campaign = Campaign::start_with_routes(CONTENDER, &[], work);
        for client in 0..3 {
            campaign.add_process_with(self.client_host(client).command(CONTENDER), &urls);
        }
        campaign
    }

    /// The nodes' addresses for the test process, which is on none of the hosts.
    fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Server::unix_url).collect()
    }
}

/// A connection over an unplugged link is not closed: the client must detect the failure itself.
fn work() -> Workload {
    Workload { ttl: Duration::from_millis(400), ..Workload::default() }
}

#[test]
fn links_are_cut_in_the_kernel() {
    let Some(world) = Hosts::start(|node| node) else { return };
    let mut campaign = world.campaign(work());
    campaign.wait_for_holds_by_each(3);
    for group in [&[0, 1][..], &[2, 3, 4], &[4, 0], &[0, 1, 2, 3, 4]] {
        group.iter().for_each(|node| world.node_host(*node).link_down());
        campaign.count_fault();
        if group.len() < 3 {
            campaign.wait_for_holds_by_each(3);
        } else {
            campaign.wait_for_failures_only(9);
        }
        group.iter().for_each(|node| world.node_host(*node).link_up());
        campaign.wait_for_holds_by_each(2);
    }
    campaign.finish_on(&world.nodes, &world.addresses()).assert_clean("links unplugged");
}

#[test]
fn packets_go_one_way_only() {
    let Some(world) = Hosts::start(|node| node) else { return };
    let mut campaign = world.campaign(work());
    campaign.wait_for_holds_by_each(3);
    for (round, nodes) in [[0, 1, 2], [2, 3, 4], [4, 0, 1]].into_iter().enumerate() {
        let alone = world.client_host(round);
        // Requests arrive and are granted, but no reply comes back.
        nodes.iter().for_each(|node| world.node_host(*node).block_sends_to(alone));
        let cut_ns = now_ns();
        campaign.count_fault();
        campaign.wait_for_failures(Some(round as u64), 3);
        for other in (0..3).filter(|other| *other != round) {
            campaign.wait_for_holds_by(other as u64, 3);
        }
        let in_vain = campaign.holds_between(round as u64, cut_ns, now_ns());
        assert_eq!(in_vain, 0, "two nodes of five are no majority, yet the process held a lock");
        nodes.iter().for_each(|node| world.node_host(*node).unblock_sends_to(alone));
        campaign.wait_for_holds_by_each(1);
    }
    campaign.finish_on(&world.nodes, &world.addresses()).assert_clean("packets in one direction only");
}

/// If two votes of five are enough, each side of a partition has its own holder.
#[test]
fn control_locks_of_two_votes_on_both_sides_of_a_cut_in_the_kernel() {
    let Some(world) = Hosts::start(ServerBuilder::without_module) else { return };
    let lock = LockMethod::Plain { votes: 2, validity: Validity::FromRequest };
    let mut campaign = world.campaign(Workload { lock, ..work() });
    campaign.wait_for_holds_by_each(1);
    for node in 0..5 {
        let cut_off = if node < 2 { 1..3 } else { 0..1 };
        cut_off.for_each(|client| world.node_host(node).block_sends_to(world.client_host(client)));
    }
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| campaign.wait_for_holds_by_each(2));
}

/// Two links have so little bandwidth that they lose most packets. The other links lose some.
#[test]
fn links_are_too_narrow() {
    let Some(world) = Hosts::start(|node| node) else { return };
    let mut campaign = world.campaign(work());
    campaign.wait_for_holds_by_each(3);
    for (node, kilobits) in [40, 40, 250, 250, 250].into_iter().enumerate() {
        if !world.node_host(node).limit_rate(kilobits) {
            return skip(
                "the kernel cannot limit the bandwidth of a link (needs `tc` with a token bucket filter)",
            );
        }
        campaign.count_fault();
    }
    for node in 0..2 {
        let host = world.node_host(node);
        eventually("packets are lost", SOON * 3, || (host.dropped_by_rate_limit() > 5).then_some(()));
    }
    assert!(campaign.all_make_progress(10), "every client must get locks: {}", campaign.summary());
    let lost: u64 = (0..5).map(|node| world.node_host(node).dropped_by_rate_limit()).sum();
    (0..5).for_each(|node| world.node_host(node).remove_rate_limit());
    campaign.wait_for_holds_by_each(3);
    let name = format!("links with too little bandwidth, {lost} packets lost");
    campaign.finish_on(&world.nodes, &world.addresses()).assert_clean(&name);
}

/// Every host loses three packets of ten. A request and its reply both pass half of the time, and the kernel
/// retransmits lost packets.
#[test]
fn three_packets_of_ten_are_lost() {
    let Some(world) = Hosts::start(|node| node) else { return };
    // The kernel waits 200 ms before it retransmits a packet.
    let mut campaign = world.campaign(Workload { ttl: Duration::from_secs(2), ..Workload::default() });
    campaign.wait_for_holds_by_each(3);
    for host in &world.internet.hosts {
        if !host.drop_packets(30) {
            return skip("the kernel cannot drop packets at random (needs `nft`)");
        }
        campaign.count_fault();
    }
    assert!(campaign.all_make_progress(2), "every client must get locks: {}", campaign.summary());
    let lost: u64 = world.internet.hosts.iter().map(Host::dropped_packets).sum();
    assert!(lost > 10, "only {lost} packets were lost");
    world.internet.hosts.iter().for_each(Host::stop_dropping_packets);
    campaign.wait_for_holds_by_each(2);
    let name = format!("three of ten packets lost, {lost} in all");
    campaign.finish_on(&world.nodes, &world.addresses()).assert_clean(&name);
}
