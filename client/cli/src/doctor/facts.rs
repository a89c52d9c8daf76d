//! What the nodes and their servers say, before it is judged.

use crate::config::Config;
use crate::exit::ExitError;
use crate::group_report::{GroupReport, NodeReport, field};
use redlock_client::{LockManager, NodeReply, Query, Response};
use redlock_contract::CHANNEL_PREFIX;
use redlock_contract::commands::Verb;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Everything that is examined.
#[derive(Clone, Debug)]
pub(super) struct GroupFacts {
    pub(super) nodes: Vec<ExaminedNode>,
    /// The time to live that is asked for if nobody names another.
    pub(super) ttl: Duration,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct ExaminedNode {
    pub(super) report: NodeReport,
    pub(super) role: Option<String>,
    /// Settings of the server and the module, as far as they may be read.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) used_memory: Option<u64>,
    /// `INFO persistence`.
    pub(super) persistence: String,
    /// How far its clock is from ours, in milliseconds, give or take the time that it took to ask.
    pub(super) clock_ms: Option<i64>,
    /// The commands that our user may not run, with the node's words; `None` if it cannot be asked.
    pub(super) missing_rights: Option<Vec<(&'static str, String)>>,
    /// Where its name leads, if it is a name.
    pub(super) address: Option<IpAddr>,
}

/// How long a name may take to be looked up. A node that answers has one that can be.
const RESOLVE_WITHIN: Duration = Duration::from_secs(2);

/// The settings that are looked at.
const SETTINGS: [&str; 5] = ["redlock.*", "maxmemory*", "append*", "save", "min-replicas-to-write"];

/// The command that a client subscribes with.
pub(super) const SUBSCRIBE: &str = "SUBSCRIBE";

/// The commands of an application, each with the arguments for `ACL DRYRUN`. No client uses the key.
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
        let mut nodes: Vec<ExaminedNode> = report.nodes.into_iter().map(ExaminedNode::new).collect();
        for pattern in SETTINGS {
            let said = locks.ask(&Query::config(pattern)).await?;
            each(&mut nodes, said, |node, response| node.settings.extend(response.pairs()));
        }
        each(&mut nodes, locks.ask(&Query::role()).await?, |node, response| {
            let role = response.items().and_then(|items| items.first()?.text().map(str::to_owned));
            node.role = role;
        });
        each(&mut nodes, locks.ask(&Query::info("memory")).await?, |node, response| {
            node.used_memory = response.text().and_then(|info| field(info, "used_memory")?.parse().ok());
        });
        each(&mut nodes, locks.ask(&Query::info("persistence")).await?, |node, response| {
            node.persistence = response.text().unwrap_or_default().to_owned();
        });
        let before = wall_ms();
        let said = locks.ask(&Query::time()).await?;
        each(&mut nodes, said, |node, response| node.clock_ms = clock(&response, before));
        for (place, node) in nodes.iter_mut().enumerate() {
            if node.report.state.is_ok() {
                node.missing_rights = rights(locks, place, config.prefix()).await?;
            }
        }
        for node in &mut nodes {
            node.address = resolve(&node.report.node).await;
        }
        Ok(Self { nodes, ttl: config.ttl(None) })
    }
}

impl ExaminedNode {
    pub(super) fn new(report: NodeReport) -> Self {
        Self {
            report,
            role: None,
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

    /// The machine that it is on, as far as its address tells: two names may lead to one.
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

/// Where a name leads, if it is one: the least of its addresses, so that two names of one machine come to the same.
async fn resolve(node: &str) -> Option<IpAddr> {
    if node.starts_with('/') || node.starts_with("sentinel ") {
        return None;
    }
    let found = tokio::time::timeout(RESOLVE_WITHIN, tokio::net::lookup_host(node)).await;
    found.ok()?.ok()?.map(|address| address.ip()).min()
}

/// Hands what every node said to its place; who said nothing is passed over.
fn each(nodes: &mut [ExaminedNode], said: Vec<NodeReply>, mut note: impl FnMut(&mut ExaminedNode, Response)) {
    for (node, reply) in nodes.iter_mut().zip(said) {
        if let Ok(response) = reply.response {
            note(node, response);
        }
    }
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How far a clock is from ours. What lies between question and answer does not count against it.
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

/// What our user may not do there; `None` if the server does not tell.
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
            // A refusal comes as an answer, not as an error.
            Ok(response) => missing.push((name, response.text().unwrap_or("no").to_owned())),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(missing))
}
