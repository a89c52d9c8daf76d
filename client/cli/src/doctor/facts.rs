//! The facts about the nodes and their servers, for the checks.

use crate::config::Config;
use crate::exit::ExitError;
use crate::group_report::{GroupReport, NodeReport, field};
use redlock_client::{LockManager, NodeReply, Query, Quorum, Response};
use redlock_contract::CHANNEL_PREFIX;
use redlock_contract::commands::Verb;
use redlock_contract::settings;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The facts about all nodes.
#[derive(Clone, Debug)]
pub(super) struct GroupFacts {
    pub(super) nodes: Vec<ExaminedNode>,
    /// How many nodes must grant a lock.
    pub(super) quorum: Quorum,
    /// The time to live in the settings, or the default.
    pub(super) ttl: Duration,
}

/// The facts about one node.
#[derive(Clone, Debug)]
pub(super) struct ExaminedNode {
    pub(super) report: NodeReport,
    pub(super) role: Option<String>,
    /// The addresses of the replicas that are connected to it.
    pub(super) replicas: Vec<String>,
    /// Settings of the server and the module; empty if this user may not read them.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) used_memory: Option<u64>,
    /// `INFO persistence`.
    pub(super) persistence: String,
    /// The wall clock of the node minus ours, in milliseconds. 0 if the round trip can explain the difference.
    pub(super) clock_ms: Option<i64>,
    /// The commands that our user may not run, with the node's reason; `None` if the node does not tell.
    pub(super) missing_rights: Option<Vec<(&'static str, String)>>,
    /// The address to which the name of the node resolves.
    pub(super) address: Option<IpAddr>,
}

/// The timeout for resolving a name.
const RESOLVE_WITHIN: Duration = Duration::from_secs(2);

/// Patterns for `CONFIG GET`: the settings that the checks read.
const SETTINGS: [&str; 5] = ["redlock.*", "maxmemory*", "append*", "save", "min-replicas-to-write"];

/// The command with which a client subscribes to grants.
pub(super) const SUBSCRIBE: &str = "SUBSCRIBE";

/// The commands of an application, each with arguments for `ACL DRYRUN`, which runs nothing.
fn commands(key: &str) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    const OWNER: &str = "nobody";
    let of =
        |verb: Verb, args: &[&str]| (verb.name(), args.iter().map(|arg| arg.as_bytes().to_vec()).collect());
    let channel = [CHANNEL_PREFIX, b"0123456789abcdef"].concat();
    vec![
        of(Verb::Acquire, &[key, OWNER, "1000"]),
        of(Verb::Extend, &[key, OWNER, "1000"]),
        of(Verb::Release, &[key, OWNER]),
        of(Verb::Inspect, &[key]),
        of(Verb::Macquire, &["1", key, OWNER, "1000"]),
        of(Verb::Mextend, &["1", key, OWNER, "1000"]),
        of(Verb::Mrelease, &["1", key, OWNER]),
        (SUBSCRIBE, vec![channel]),
    ]
}

impl GroupFacts {
    pub(super) async fn gather(locks: &LockManager, config: &Config) -> Result<Self, ExitError> {
        let report = GroupReport::take(locks).await?;
        let quorum = report.quorum;
        let mut nodes: Vec<ExaminedNode> = report.nodes.into_iter().map(ExaminedNode::new).collect();
        for pattern in SETTINGS {
            let replies = locks.ask(&Query::config(pattern)).await?;
            each(&mut nodes, replies, |node, response| node.settings.extend(response.pairs()));
        }
        each(&mut nodes, locks.ask(&Query::role()).await?, |node, response| {
            let role = response.items().and_then(|items| items.first()?.text().map(str::to_owned));
            node.role = role;
            node.replicas = replicas(&response);
        });
        each(&mut nodes, locks.ask(&Query::info("memory")).await?, |node, response| {
            node.used_memory = response.text().and_then(|info| field(info, "used_memory")?.parse().ok());
        });
        each(&mut nodes, locks.ask(&Query::info("persistence")).await?, |node, response| {
            node.persistence = response.text().unwrap_or_default().to_owned();
        });
        let before = wall_ms();
        let replies = locks.ask(&Query::time()).await?;
        each(&mut nodes, replies, |node, response| node.clock_ms = clock(&response, before));
        for (place, node) in nodes.iter_mut().enumerate() {
            if node.report.state.is_ok() {
                node.missing_rights = rights(locks, place, config.prefix()).await?;
            }
        }
        for node in &mut nodes {
            node.address = resolve(&node.report.node).await;
        }
        Ok(Self { nodes, quorum, ttl: config.ttl(None) })
    }
}

impl ExaminedNode {
    pub(super) fn new(report: NodeReport) -> Self {
        Self {
            report,
            role: None,
            replicas: Vec::new(),
            settings: BTreeMap::new(),
            used_memory: None,
            persistence: String::new(),
            clock_ms: None,
            missing_rights: None,
            address: None,
        }
    }

    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    /// A number among the settings of the module.
    pub(super) fn module_number(&self, name: &str) -> Option<u64> {
        self.module_setting(name)?.parse().ok()
    }

    /// A setting of the module.
    pub(super) fn module_setting(&self, name: &str) -> Option<&str> {
        self.setting(&format!("{}{name}", settings::PREFIX))
    }

    /// The machine of the node: its IP address if known, else its name. Several names may resolve to one machine.
    pub(super) fn host(&self) -> Option<String> {
        let name = &*self.report.node;
        if name.starts_with("sentinel ") {
            return None;
        }
        if name.starts_with('/') {
            return Some("this machine".to_owned());
        }
        let (host, _) = name.rsplit_once(':')?;
        let address = host.trim_matches(['[', ']']).parse().ok().or(self.address);
        Some(match address {
            Some(address) if IpAddr::is_loopback(&address) => "this machine".to_owned(),
            Some(address) => address.to_string(),
            None if host == "localhost" => "this machine".to_owned(),
            None => host.to_lowercase(),
        })
    }
}

/// The address to which a name resolves. Of several addresses it returns the smallest, so that two names of one machine
/// give the same address.
async fn resolve(node: &str) -> Option<IpAddr> {
    if node.starts_with('/') || node.starts_with("sentinel ") {
        return None;
    }
    let found = tokio::time::timeout(RESOLVE_WITHIN, tokio::net::lookup_host(node)).await;
    found.ok()?.ok()?.map(|address| address.ip()).min()
}

/// Calls `note` with each node and its response. Skips nodes that did not answer.
fn each(
    nodes: &mut [ExaminedNode],
    replies: Vec<NodeReply>,
    mut note: impl FnMut(&mut ExaminedNode, Response),
) {
    for (node, reply) in nodes.iter_mut().zip(replies) {
        if let Ok(response) = reply.response {
            note(node, response);
        }
    }
}

/// The addresses of the connected replicas, from the reply of a master to `ROLE`.
fn replicas(role: &Response) -> Vec<String> {
    let items = role.items().unwrap_or_default();
    let is_master = items.first().and_then(Response::text) == Some("master");
    let listed = items.get(2).filter(|_| is_master).and_then(Response::items).unwrap_or_default();
    let address = |replica: &Response| {
        let parts = replica.items()?;
        Some(format!("{}:{}", parts.first()?.text()?, parts.get(1)?.integer()?))
    };
    listed.iter().filter_map(address).collect()
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The difference between the node's clock and ours in milliseconds; 0 if the node's time is between request and reply.
fn clock(response: &Response, before: i64) -> Option<i64> {
    let items = response.items()?;
    let (seconds, micros) = (items.first()?.integer()?, items.get(1)?.integer()?);
    let shown = seconds.checked_mul(1_000)?.checked_add(micros / 1_000)?;
    let after = wall_ms();
    Some(if shown < before {
        shown - before
    } else if shown > after {
        shown - after
    } else {
        0
    })
}

/// The commands that our user may not run on this node; `None` if the server does not tell.
async fn rights(
    locks: &LockManager,
    node: usize,
    prefix: &str,
) -> Result<Option<Vec<(&'static str, String)>>, ExitError> {
    let whoami = locks.ask_node(node, &Query::whoami()).await?;
    let Some(user) = whoami.response.ok().and_then(|response| response.text().map(str::to_owned)) else {
        return Ok(None);
    };
    let key = format!("{prefix}redlock:doctor");
    let mut missing = Vec::new();
    for (name, args) in commands(&key) {
        let words = std::iter::once(name.as_bytes().to_vec()).chain(args);
        let reply = locks.ask_node(node, &Query::may_run(&user, words)).await?;
        match reply.response {
            Ok(response) if response.text() == Some("OK") => {}
            // `ACL DRYRUN` reports a missing permission in a text reply, not as an error.
            Ok(response) => missing.push((name, response.text().unwrap_or("no").to_owned())),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(missing))
}
