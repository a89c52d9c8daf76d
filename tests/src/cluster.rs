//! A cluster: masters that share the keys out among themselves.

use crate::{Answer, Builder, Server, eventually};
use std::ops::{Index, IndexMut, Range};
use std::thread;
use std::time::Duration;

/// How many slots there are to share out.
const SLOTS: usize = 16_384;

/// The members of a new cluster gossip for a few seconds before all of them serve.
const FORMING: Duration = Duration::from_secs(30);

/// Masters that know each other and serve about as many slots each. No replicas.
///
/// `cluster[2]` is the third [`Server`]: kill it, pause it, restart it like any other.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster of so many masters.
    ///
    /// # Panics
    /// When one of them does not come up, or when they do not find together.
    #[must_use]
    pub fn start(masters: usize) -> Self {
        Self::start_with(masters, |_, master| master)
    }

    /// Starts a cluster of masters that are each as `describe` changes the usual one; it is told the index.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    #[must_use]
    pub fn start_with(masters: usize, describe: impl Fn(usize, Builder) -> Builder) -> Self {
        let members: Vec<_> =
            (0..masters).map(|index| describe(index, Server::builder().cluster())).collect();
        // All at once: a server spends most of its start waiting.
        let members = thread::scope(|scope| {
            let starting: Vec<_> = members.into_iter().map(|one| scope.spawn(|| one.start())).collect();
            starting.into_iter().map(|one| one.join().expect("a member that comes up")).collect()
        });
        Self::form(members)
    }

    /// Makes a cluster of servers that were started for it and do not know each other yet.
    ///
    /// # Panics
    /// When they do not find together.
    #[must_use]
    pub fn form(members: Vec<Server>) -> Self {
        let cluster = Self { members };
        cluster.meet();
        cluster
    }

    fn meet(&self) {
        for (index, member) in self.members.iter().enumerate() {
            let Range { start, end } = self.share(index);
            let mut wire = member.connect();
            let last = end - 1;
            // Epochs of their own from the start: nobody has to give way later.
            for line in [
                format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1),
                format!("CLUSTER ADDSLOTSRANGE {start} {last}"),
            ] {
                assert_eq!(wire.call_strs(&line), Answer::ok(), "{line}");
            }
            if index > 0 {
                self.introduce(member);
            }
        }
        let size = format!("cluster_size:{}\r\n", self.members.len());
        for member in &self.members {
            eventually("a member of the cluster serves", FORMING, || {
                let info = member.connect().call_strs("CLUSTER INFO").string();
                (info.contains("cluster_state:ok") && info.contains(&size)).then_some(())
            });
        }
    }

    /// The slots that a master is given at the start.
    fn share(&self, master: usize) -> Range<usize> {
        let masters = self.members.len();
        SLOTS * master / masters..SLOTS * (master + 1) / masters
    }

    /// Starts a server that copies a master of this cluster, and waits until everybody knows it.
    ///
    /// # Panics
    /// When it does not come up, or does not become a replica.
    #[must_use]
    pub fn add_replica(&self, master: usize) -> Server {
        let replica = Server::builder().cluster().start();
        self.introduce(&replica);
        let (id, line) = (self.id(master), format!("CLUSTER REPLICATE {}", self.id(master)));
        eventually("the new member knows its master", FORMING, || {
            (replica.connect().call_strs(&line) == Answer::ok()).then_some(())
        });
        replica.catch_up(&self[master]);
        // Whoever is not connected to everybody yet could neither ask for votes nor be asked.
        let all = self.members.len() + 1;
        for member in self.members.iter().chain([&replica]) {
            eventually("every member knows the replica and all the others", FORMING, || {
                let nodes = member.connect().call_strs("CLUSTER NODES").string();
                let knows = nodes.lines().any(|line| line.contains("slave") && line.contains(&id));
                let connected = |line: &&str| line.contains(" connected") && !line.contains("handshake");
                (knows && nodes.lines().filter(connected).count() == all).then_some(())
            });
        }
        replica
    }

    fn introduce(&self, newcomer: &Server) {
        let (port, bus) = (port(newcomer), bus_port(newcomer));
        let met = self[0].connect().call_strs(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        assert_eq!(met, Answer::ok());
    }

    /// The address of every member on TCP.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(Server::url).collect()
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.members.iter()
    }

    /// A name with this beginning that was given to this master at the start.
    ///
    /// # Panics
    /// When there is no such master.
    #[must_use]
    pub fn key(&self, master: usize, beginning: &str) -> String {
        let mut wire = self[master].connect();
        let share = self.share(master);
        let mut names = (0..).map(|number| format!("{beginning}{number}"));
        names
            .find(|name| {
                let slot = wire.call(&["CLUSTER", "KEYSLOT", name]).int();
                usize::try_from(slot).is_ok_and(|slot| share.contains(&slot))
            })
            .expect("names never end")
    }

    /// Tells two masters that the slot of `key` is to move from one to the other, as an administrator does.
    /// The key itself stays where it is.
    ///
    /// # Panics
    /// When they do not want to.
    pub fn announce_move(&self, key: &str, from: usize, to: usize) {
        let slot = self.slot(key);
        self.order(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.order(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
    }

    /// Carries one key over to the master that its slot is on its way to.
    ///
    /// # Panics
    /// When it cannot be carried.
    pub fn carry(&self, key: &str, from: usize, to: usize) {
        let port = port(&self[to]).to_string();
        let answer = self[from].connect().call(&["MIGRATE", "127.0.0.1", &port, key, "0", "10000"]);
        assert_eq!(answer, Answer::ok());
    }

    /// Tells every member that the slot of `key` has arrived, the one that has it now first.
    ///
    /// # Panics
    /// When they do not want to know.
    pub fn finish_move(&self, key: &str, to: usize) {
        let line = format!("CLUSTER SETSLOT {} NODE {}", self.slot(key), self.id(to));
        self.order(to, &line);
        (0..self.members.len()).filter(|other| *other != to).for_each(|other| self.order(other, &line));
    }

    /// Lets a master take the slot of `key` without asking, as one does that was elected in the place of another: its
    /// word is newer than that of the one who had the slot, and spreads. No key is carried over.
    ///
    /// # Panics
    /// When it does not want to, or nobody believes it.
    pub fn seize(&self, key: &str, by: usize) {
        self.order(by, &format!("CLUSTER SETSLOT {} NODE {}", self.slot(key), self.id(by)));
        let bumped = self[by].connect().call_strs("CLUSTER BUMPEPOCH").string();
        assert!(
            bumped.starts_with("BUMPED") || bumped.starts_with("STILL"),
            "its word is the newest: {bumped}"
        );
        for other in (0..self.members.len()).filter(|other| *other != by) {
            eventually("every member believes it", FORMING, || {
                let answer = self[other].connect().call(&["GET", key]);
                (answer.error_word() == Some("MOVED")).then_some(())
            });
        }
    }

    fn slot(&self, key: &str) -> i64 {
        self[0].connect().call(&["CLUSTER", "KEYSLOT", key]).int()
    }

    fn id(&self, member: usize) -> String {
        self[member].connect().call_strs("CLUSTER MYID").string()
    }

    fn order(&self, member: usize, line: &str) {
        assert_eq!(self[member].connect().call_strs(line), Answer::ok(), "{line}");
    }
}

fn port(member: &Server) -> u16 {
    member.port().expect("a member of a cluster has a port")
}

fn bus_port(member: &Server) -> String {
    let answer = member.connect().call_strs("CONFIG GET cluster-port");
    answer.field("cluster-port").expect("a server tells its settings").string()
}

impl Index<usize> for Cluster {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.members[index]
    }
}

impl IndexMut<usize> for Cluster {
    fn index_mut(&mut self, index: usize) -> &mut Server {
        &mut self.members[index]
    }
}
