//! The upper bound: the same commands over plain sockets, from one thread that does nothing else.
//!
//! Tasks are entries of a list. One write sends all their commands to a node, and one read takes all replies of a
//! node. There is no runtime, no timeout, no check but the count of votes, and no handling of faulty nodes.

// One system call that the standard library does not offer.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use redlock_tests::campaign::now_ns;

use crate::client::cpu;
use crate::client::lock_client::TTL_MS;
use crate::names;
use crate::worker::{HeldSpan, WorkerReport};

/// A connection to each node.
pub(super) struct Sockets {
    nodes: Vec<NodeSocket>,
    /// How many owners were used so far.
    owners: usize,
}

struct NodeSocket {
    stream: TcpStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// The requests in flight, in order: task and number of its request.
    asked: VecDeque<(usize, u64)>,
}

/// The state of a task.
struct Task {
    key: String,
    owner: String,
    /// The number of the request that it waits for. Replies to earlier requests are ignored.
    request: u64,
    is_release: bool,
    votes: usize,
    from_ns: u64,
}

impl Sockets {
    pub(super) fn connect(urls: &[String]) -> Self {
        let node = |url: &String| {
            let address = url.trim_start_matches("redis://").trim_end_matches('/');
            let stream = TcpStream::connect(address).expect("the node accepts connections");
            stream.set_nodelay(true).expect("a socket");
            stream.set_nonblocking(true).expect("a socket");
            NodeSocket { stream, to_send: Vec::new(), received: Vec::new(), asked: VecDeque::new() }
        };
        Self { nodes: urls.iter().map(node).collect(), owners: 0 }
    }

    /// Runs tasks that acquire and release for this long, each with its own key.
    pub(super) fn cycles(
        &mut self,
        tasks: usize,
        key: impl Fn(usize) -> String,
        time: Duration,
    ) -> WorkerReport {
        let before_us = cpu::own_us();
        let end_ns = now_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut turns = Vec::new();
        let fresh = |task| Task {
            key: key(task),
            owner: String::new(),
            request: 0,
            is_release: false,
            votes: 0,
            from_ns: 0,
        };
        let mut all: Vec<Task> = (0..tasks).map(fresh).collect();
        for (number, task) in all.iter_mut().enumerate() {
            self.acquire(number, task);
        }
        // Reads also the replies that no task waits for: the next order begins with nothing in flight.
        while self.nodes.iter().any(|node| !node.asked.is_empty()) {
            for (number, request, is_yes) in self.exchange() {
                let task = &mut all[number];
                if task.request != request {
                    continue;
                }
                assert!(is_yes, "an uncontended lock was not acquired");
                task.votes += 1;
                if task.votes <= self.nodes.len() / 2 {
                    continue;
                }
                if !task.is_release {
                    self.release(number, task);
                    continue;
                }
                let to_ns = now_ns();
                turns.push(HeldSpan { task: number, from_ns: task.from_ns, to_ns, to_the_end: true });
                if to_ns < end_ns {
                    self.acquire(number, task);
                } else {
                    // The task ignores all further replies.
                    task.request += 1;
                }
            }
        }
        WorkerReport { turns, cpu_us: cpu::own_us() - before_us, ..WorkerReport::default() }
    }

    fn acquire(&mut self, number: usize, task: &mut Task) {
        self.owners += 1;
        task.owner = names::owner(self.owners);
        task.from_ns = now_ns();
        task.is_release = false;
        let words = encoded(&["REDLOCK.ACQUIRE", &task.key, &task.owner, &TTL_MS.to_string()]);
        self.ask(number, task, &words);
    }

    fn release(&mut self, number: usize, task: &mut Task) {
        task.is_release = true;
        let words = encoded(&["REDLOCK.RELEASE", &task.key, &task.owner]);
        self.ask(number, task, &words);
    }

    fn ask(&mut self, number: usize, task: &mut Task, words: &[u8]) {
        task.request += 1;
        task.votes = 0;
        for node in &mut self.nodes {
            node.to_send.extend_from_slice(words);
            node.asked.push_back((number, task.request));
        }
    }

    /// Sends all pending commands, waits until a node has answered, and reads all replies.
    fn exchange(&mut self) -> Vec<(usize, u64, bool)> {
        for node in &mut self.nodes {
            node.send();
        }
        wait_for_any(&self.nodes);
        let mut answers = Vec::new();
        for node in &mut self.nodes {
            node.receive(&mut answers);
        }
        answers
    }
}

impl NodeSocket {
    fn send(&mut self) {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(count) => drop(self.to_send.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("a node: {error}"),
            }
        }
    }

    fn receive(&mut self, answers: &mut Vec<(usize, u64, bool)>) {
        let mut chunk = [0; 1 << 14];
        match self.stream.read(&mut chunk) {
            Ok(0) => panic!("a node closed its connection"),
            Ok(count) => self.received.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("a node: {error}"),
        }
        let mut read = 0;
        while let Some(length) = self.received[read..].iter().position(|byte| *byte == b'\n') {
            let (task, request) = self.asked.pop_front().expect("an answer to a request");
            // A fence, 1 or 0 is an integer reply; nil and errors are not.
            let line = &self.received[read..read + length];
            answers.push((task, request, line.starts_with(b":") && line != b":0\r"));
            read += length + 1;
        }
        self.received.drain(..read);
    }
}

/// A command in the server's protocol.
fn encoded(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        write!(out, "${}\r\n{word}\r\n", word.len()).expect("writing to a buffer succeeds");
    }
    out
}

fn wait_for_any(nodes: &[NodeSocket]) {
    let wish = |node: &NodeSocket| {
        let events = if node.to_send.is_empty() { libc::POLLIN } else { libc::POLLIN | libc::POLLOUT };
        libc::pollfd { fd: node.stream.as_raw_fd(), events, revents: 0 }
    };
    let mut wishes: Vec<libc::pollfd> = nodes.iter().map(wish).collect();
    let count = libc::nfds_t::try_from(wishes.len()).unwrap_or(0);
    // SAFETY: the kernel reads and writes `count` structs, the length of `wishes`.
    let ready = unsafe { libc::poll(wishes.as_mut_ptr(), count, 10_000) };
    assert!(ready > 0, "no node answered within 10 s");
}
