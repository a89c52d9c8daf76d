//! Read-only commands to the nodes, for operators and tools.

use crate::Error;
use crate::driver::{Message, NodeResponse};
use crate::inspect::read_lock_info;
use crate::manager::LockManager;
use crate::wire::Frame;
use redlock_contract::TYPE_NAME;
use redlock_contract::commands::Verb;
use redlock_proto::inspection::LockInfo;
use redlock_proto::{Failure, NodeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A read-only command that a node answers quickly.
///
/// It shares the manager's connections with the commands that acquire locks. So a `Query` cannot be made of
/// arbitrary words: every constructor here is a command that is quick, replies at once and leaves the
/// connection unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    words: Vec<Vec<u8>>,
}

impl Query {
    fn of(words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| word.as_bytes().to_vec()).collect() }
    }

    /// `INFO section`: statistics of the server, as lines of text.
    #[must_use]
    pub fn info(section: &str) -> Self {
        Self::of(&["INFO", section])
    }

    /// `CONFIG GET pattern`: names and values of settings.
    #[must_use]
    pub fn config(pattern: &str) -> Self {
        Self::of(&["CONFIG", "GET", pattern])
    }

    /// `TIME`: the server's clock, in seconds and microseconds.
    #[must_use]
    pub fn time() -> Self {
        Self::of(&["TIME"])
    }

    /// `ROLE`: whether the server is a master.
    #[must_use]
    pub fn role() -> Self {
        Self::of(&["ROLE"])
    }

    /// `REDLOCK.NODE`, with all its fields.
    #[must_use]
    pub fn node() -> Self {
        Self::of(&[Verb::Node.name()])
    }

    /// `REDLOCK.INSPECT key`. The key includes the prefix.
    #[must_use]
    pub fn inspect(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![Verb::Inspect.name().into(), key.into()] }
    }

    /// `TYPE key`. The key includes the prefix. The reply is `none` if the key does not exist, and `string`
    /// if another client may have locked it with `SET NX PX`, which counts as held.
    #[must_use]
    pub fn key_type(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![b"TYPE".to_vec(), key.into()] }
    }

    /// `PTTL key`: the time to live of a plain key, in milliseconds; -1 if it has none.
    #[must_use]
    pub fn time_left(key: impl Into<Vec<u8>>) -> Self {
        Self { words: vec![b"PTTL".to_vec(), key.into()] }
    }

    /// One step of `SCAN` over locks, from this cursor on. The server looks at about `count` keys of any
    /// type; 1,000 keys take it a fraction of a millisecond.
    #[must_use]
    pub fn scan_locks(cursor: u64, pattern: impl Into<Vec<u8>>, count: u32) -> Self {
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let mut query = Self::of(&["SCAN", &cursor, "COUNT", &count, "TYPE", TYPE_NAME, "MATCH"]);
        query.words.push(pattern.into());
        query
    }

    /// `ACL WHOAMI`: the user of the connection.
    #[must_use]
    pub fn whoami() -> Self {
        Self::of(&["ACL", "WHOAMI"])
    }

    /// `ACL DRYRUN user command…`: whether a user may run a command. The server does not run it.
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

/// The reply of one node to a [`Query`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReply {
    /// The node's address.
    pub node: Arc<str>,
    /// The response, or why it failed. An error reply, such as a missing permission, is a failure of the
    /// kind [`FailureKind::Rejected`](crate::FailureKind::Rejected).
    pub response: Result<Response, Failure>,
    /// The time until the response, including the time to connect if there was no connection.
    pub latency: Duration,
}

/// A response of a server. Its methods return `None` if it is of another type.
///
/// `Debug` shows type and size only: the response to `CONFIG GET` contains passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Response(Frame);

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Frame::Integer(number) => write!(f, "Response({number})"),
            Frame::Nil => f.write_str("Response(nil)"),
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
    /// The text of a string that is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_text()
    }

    /// The bytes of a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.as_bytes()
    }

    /// The value of an integer, or of a string of digits.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.0.as_integer().or_else(|| self.text()?.parse().ok())
    }

    /// The elements of an array.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Response>> {
        Some(self.0.as_items()?.iter().cloned().map(Self).collect())
    }

    /// The value of a field of a map (RESP3), or of the flat array that stands for one (RESP2).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Response> {
        self.0.field(name).cloned().map(Self)
    }

    /// The fields of a map, or of the flat array that stands for one. Only fields that are text or numbers.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.0.fields().filter_map(|(name, value)| {
            let value = value.as_text().map(str::to_owned).or_else(|| Some(value.as_integer()?.to_string()));
            Some((name.as_text()?.to_owned(), value?))
        });
        pairs.collect()
    }

    /// Whether the response is nil: there is no such key or lock.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self.0, Frame::Nil)
    }
}

impl Response {
    /// What a node reports about a lock, if this is the reply to [`Query::inspect`] and the node holds the lock.
    #[must_use]
    pub fn lock_info(&self) -> Option<LockInfo> {
        read_lock_info(&self.0)
    }
}

impl LockManager {
    /// Sends a query to every node. Returns one reply per node, in the configured order.
    ///
    /// For operators and tools; acquiring locks does not need it. Cancel safe.
    ///
    /// # Errors
    /// [`Error::NoRuntime`]. A node that does not answer is a failure in its own reply.
    pub async fn ask(&self, query: &Query) -> Result<Vec<NodeReply>, Error> {
        let replies = self.broadcast(query.words.clone()).await?;
        let named = self.shared().settings.names.iter().zip(replies);
        Ok(named.map(|(name, reply)| node_reply(name, reply)).collect())
    }

    /// Sends a query to one node, given by its index in the configured order. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node. [`Error::NoRuntime`].
    pub async fn ask_node(&self, node: usize, query: &Query) -> Result<NodeReply, Error> {
        let name = self.shared().settings.names.get(node).map(Arc::clone);
        let name = name.ok_or_else(|| Error::invalid("no node has this index"))?;
        let replies = self.send_to(query.words.clone(), NodeSet::one(node)).await?;
        let reply = replies.into_iter().next().ok_or(Error::NoRuntime)?;
        Ok(node_reply(&name, reply))
    }

    /// The names of the nodes, in the order in which they were configured. They contain no passwords.
    #[must_use]
    pub fn nodes(&self) -> Vec<Arc<str>> {
        self.shared().settings.names.clone()
    }

    /// Sends a command that is not a vote to all nodes.
    pub(crate) async fn broadcast(&self, words: Vec<Vec<u8>>) -> Result<Vec<NodeResponse>, Error> {
        self.send_to(words, NodeSet::first(self.shared().settings.quorum.nodes())).await
    }

    /// Sends a command that is not a vote to some nodes.
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
    fn every_query_is_the_command_that_it_names() {
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
    async fn a_query_goes_to_one_node_or_to_all() {
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
        // Nodes in memory do not have this command, and reply with an error as a server would.
        let refused = locks.ask_node(0, &Query::time()).await.expect("the first of three").response;
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Rejected));
    }
}
