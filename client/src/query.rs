//! Commands to the nodes that are not about one lock: for those who look after them.

use crate::Error;
use crate::driver::{Message, NodeResponse};
use crate::manager::LockManager;
use crate::wire::Frame;
use redlock_proto::{Failure, NodeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A command that changes nothing on a node and takes it little time.
///
/// It travels on the manager's own connections, between the commands of those who take locks: so there is no way
/// to make one of any words. Only commands that are quick, answered at once and leave the connection as it was
/// are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    words: Vec<Vec<u8>>,
}

impl Query {
    fn of(words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| word.as_bytes().to_vec()).collect() }
    }

    /// `INFO section`: numbers of the server, as lines of text.
    #[must_use]
    pub fn info(section: &str) -> Self {
        Self::of(&["INFO", section])
    }

    /// `CONFIG GET pattern`: settings, names and values.
    #[must_use]
    pub fn config(pattern: &str) -> Self {
        Self::of(&["CONFIG", "GET", pattern])
    }

    /// `TIME`: what the server's clock shows, seconds and microseconds.
    #[must_use]
    pub fn time() -> Self {
        Self::of(&["TIME"])
    }

    /// `ROLE`: whether it is a master.
    #[must_use]
    pub fn role() -> Self {
        Self::of(&["ROLE"])
    }

    /// `REDLOCK.NODE`, with all its fields.
    #[must_use]
    pub fn node() -> Self {
        Self::of(&["REDLOCK.NODE"])
    }

    /// `REDLOCK.INSPECT key`, for a key as the nodes know it, with its prefix.
    #[must_use]
    pub fn inspect(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![b"REDLOCK.INSPECT".to_vec(), key.into()] }
    }

    /// `TYPE key`, for a key as the nodes know it: `none` if there is none, `string` if somebody may have locked it
    /// with `SET NX PX`, which counts as held.
    #[must_use]
    pub fn key_type(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![b"TYPE".to_vec(), key.into()] }
    }

    /// `PTTL key`: how long a key that is no lock of the module lasts, in milliseconds; -1 if it has no end.
    #[must_use]
    pub fn time_left(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![b"PTTL".to_vec(), key.into()] }
    }

    /// One step of `SCAN` over keys that are locks, from this cursor on: about so many keys of any type are
    /// looked at. With a thousand that is a fraction of a millisecond of the server's time.
    #[must_use]
    pub fn scan_locks(cursor: u64, pattern: impl Into<Vec<u8>>, count: u32) -> Self {
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let mut query = Self::of(&["SCAN", &cursor, "COUNT", &count, "TYPE", LOCK_TYPE, "MATCH"]);
        query.words.push(pattern.into());
        query
    }

    /// `ACL WHOAMI`: as whom one is logged in.
    #[must_use]
    pub fn whoami() -> Self {
        Self::of(&["ACL", "WHOAMI"])
    }

    /// `ACL DRYRUN user command…`: whether a user may run a command. It is not run.
    #[must_use]
    pub fn may_run<W: AsRef<[u8]>>(user: &str, command: impl IntoIterator<Item = W>) -> Self {
        let mut query = Self::of(&["ACL", "DRYRUN", user]);
        query.words.extend(command.into_iter().map(|word| word.as_ref().to_vec()));
        query
    }

    pub(crate) fn into_words(self) -> Vec<Vec<u8>> {
        self.words
    }
}

/// What `TYPE` says of a lock.
const LOCK_TYPE: &str = "redlock-1";

/// What one node answered to a [`Query`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReply {
    /// The node's address.
    pub node: Arc<str>,
    /// What it said, or why it did not. An error of the server, such as a missing right, is a failure of the kind
    /// [`FailureKind::Rejected`](crate::FailureKind::Rejected).
    pub response: Result<Response, Failure>,
    /// How long that took, connecting included if there was no connection.
    pub latency: Duration,
}

/// An answer of a server. What is asked of it that it is not is `None`.
///
/// Printing it shows its kind and size only: `CONFIG GET` answers with passwords, too.
#[derive(Clone, PartialEq, Eq)]
pub struct Response(Frame);

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Frame::Integer(number) => write!(f, "Response({number})"),
            Frame::Nil => f.write_str("Response(nothing)"),
            Frame::Boolean(truth) => write!(f, "Response({truth})"),
            Frame::Simple(bytes) | Frame::Error(bytes) | Frame::Bulk(bytes) | Frame::Numeral(bytes) => {
                write!(f, "Response({} bytes)", bytes.len())
            }
            Frame::Array(items) | Frame::Push(items) => write!(f, "Response({} items)", items.len()),
            Frame::Map(pairs) => write!(f, "Response({} pairs)", pairs.len()),
        }
    }
}

impl Response {
    /// As text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_text()
    }

    /// As any bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.as_bytes()
    }

    /// As a number; a text of digits is one too.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.0.as_integer().or_else(|| self.text()?.parse().ok())
    }

    /// The items of a list.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Response>> {
        Some(self.0.as_items()?.iter().cloned().map(Self).collect())
    }

    /// The value of a name, in a map or in the list that stands for one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Response> {
        self.0.field(name).cloned().map(Self)
    }

    /// Names and values that are text, in a map or in the list that stands for one.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.0.fields().filter_map(|(name, value)| {
            let value = value.as_text().map(str::to_owned).or_else(|| Some(value.as_integer()?.to_string()));
            Some((name.as_text()?.to_owned(), value?))
        });
        pairs.collect()
    }

    /// Whether it is nothing: no such key, no such lock.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self.0, Frame::Nil)
    }
}

impl LockManager {
    /// Sends one query to every node.
    ///
    /// For those who look after the nodes, not for those who take locks. Cancel safe.
    ///
    /// # Errors
    /// Only for want of a runtime: nodes that do not answer are part of the report.
    pub async fn ask(&self, query: &Query) -> Result<Vec<NodeReply>, Error> {
        let replies = self.broadcast(query.words.clone()).await?;
        let named = self.shared().settings.names.iter().zip(replies);
        Ok(named.map(|(name, reply)| node_reply(name, reply)).collect())
    }

    /// Asks one node, by its place among those that were configured. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, and for want of a runtime.
    pub async fn ask_node(&self, node: usize, query: &Query) -> Result<NodeReply, Error> {
        let name = self.shared().settings.names.get(node).map(Arc::clone);
        let name = name.ok_or_else(|| Error::invalid("there is no such node"))?;
        let replies = self.send_to(query.words.clone(), NodeSet::one(node)).await?;
        let reply = replies.into_iter().next().ok_or(Error::NoRuntime)?;
        Ok(node_reply(&name, reply))
    }

    /// What the nodes are called, in the order in which they were configured; never with a password.
    #[must_use]
    pub fn nodes(&self) -> Vec<Arc<str>> {
        self.shared().settings.names.clone()
    }

    /// Asks all nodes something that is no vote.
    pub(crate) async fn broadcast(&self, words: Vec<Vec<u8>>) -> Result<Vec<NodeResponse>, Error> {
        self.send_to(words, NodeSet::first(self.shared().settings.quorum.nodes())).await
    }

    pub(crate) async fn send_to(&self, words: Vec<Vec<u8>>, to: NodeSet) -> Result<Vec<NodeResponse>, Error> {
        self.shared().call(|answer| Message::Broadcast { words, to, answer }).await
    }
}

fn node_reply(name: &Arc<str>, reply: NodeResponse) -> NodeReply {
    NodeReply { node: Arc::clone(name), response: reply.frame.map(Response), latency: reply.latency }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_proto::FailureKind;

    fn spelled(query: &Query) -> String {
        let words: Vec<_> = query.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    #[test]
    fn every_query_has_its_words() {
        let table = [
            (Query::info("redlock"), "INFO redlock"),
            (Query::config("redlock.*"), "CONFIG GET redlock.*"),
            (Query::time(), "TIME"),
            (Query::role(), "ROLE"),
            (Query::node(), "REDLOCK.NODE"),
            (Query::inspect("app:k"), "REDLOCK.INSPECT app:k"),
            (Query::key_type("app:k"), "TYPE app:k"),
            (Query::time_left("app:k"), "PTTL app:k"),
            (Query::scan_locks(7, "app:*", 1000), "SCAN 7 COUNT 1000 TYPE redlock-1 MATCH app:*"),
            (Query::whoami(), "ACL WHOAMI"),
            (Query::may_run("app", ["REDLOCK.NODE"]), "ACL DRYRUN app REDLOCK.NODE"),
        ];
        for (query, words) in table {
            assert_eq!(spelled(&query), words);
        }
    }

    #[tokio::test]
    async fn one_node_and_all_of_them_can_be_asked() {
        let locks = LockManager::in_memory(3);
        let replies = locks.ask(&Query::node()).await.expect("a runtime");
        assert_eq!(replies.len(), 3);
        for (reply, name) in replies.iter().zip(locks.nodes()) {
            assert_eq!(reply.node, name);
            let response = reply.response.as_ref().expect("a node in memory answers");
            assert_eq!(response.field("locks").and_then(|locks| locks.integer()), Some(0));
        }
        let one = locks.ask_node(1, &Query::inspect("nothing")).await.expect("the second of three");
        assert_eq!(one.node, locks.nodes()[1]);
        assert!(one.response.is_ok_and(|response| response.is_nil()));
        assert!(matches!(locks.ask_node(3, &Query::node()).await, Err(Error::Invalid(_))));
        // Nodes in memory have no such command, and say so as a server would.
        let refused = locks.ask_node(0, &Query::time()).await.expect("the first of three").response;
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Rejected));
    }
}
