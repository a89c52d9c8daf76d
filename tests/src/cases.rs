//! The contract of one node as a table of commands and replies.
//!
//! A line of a case is one of:
//!
//! - `CONNECTION> COMMAND = REPLY`: a command on connection 0 to 9. The reply is an integer, `nil`, the first word of
//!   an error, or the elements of a list or a map. A list or a map in it is in brackets;
//! - `pass MS`: time passes;
//! - `del KEY`, `string KEY`, `list KEY`: an administrator deletes a key, or creates one that is not a lock;
//! - `close CONNECTION`;
//! - `heard CHANNEL MESSAGE`: the next grant push. In place of the proof, which depends on the node id, the message has
//!   the owner that signed it.

use redlock_contract::grant::Unverified;

/// Formats a grant push as a `heard` line of a case. `owners` are the owners that may have signed it.
///
/// # Panics
/// If the message is not a grant, or none of the owners has signed it for this node.
pub fn push_line<'a>(
    node_id: &str,
    owners: impl IntoIterator<Item = &'a [u8]>,
    channel: &[u8],
    message: &[u8],
) -> String {
    let text = String::from_utf8_lossy(message);
    let channel = channel.strip_prefix(redlock_contract::CHANNEL_PREFIX).expect("a channel for grants");
    let channel = String::from_utf8_lossy(channel);
    let read = Unverified::parse(message).unwrap_or_else(|| panic!("not a grant: {text}"));
    let mut owners = owners.into_iter();
    let owner = owners.find(|owner| read.verify(node_id, owner).is_some());
    let owner = owner.unwrap_or_else(|| panic!("no owner has signed it for {node_id}: {text}"));
    let proof = if text.starts_with("stamped") { 6 } else { 3 };
    let words = text.split(' ').enumerate().map(|(place, word)| match place == proof {
        true => String::from_utf8_lossy(owner),
        false => word.into(),
    });
    format!("{channel} {}", words.collect::<Vec<_>>().join(" "))
}

/// A case: the rule that it checks, and its lines.
pub type Case = (&'static str, &'static [&'static str]);

/// All cases. Each begins with an empty node.
pub const CASES: &[Case] = &[
    (
        "a free lock is granted, fences start at 1 and grow",
        &["0> REDLOCK.ACQUIRE k a 1000 = 1", "0> REDLOCK.RELEASE k a = 1", "0> REDLOCK.ACQUIRE k b 1000 = 2"],
    ),
    (
        "a held lock is refused to every other owner",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 FENCE 99 LABEL x = nil",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "a repeated acquire of the owner keeps the fence and extends the lock",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 LABEL first = 1",
            "pass 400",
            "1> REDLOCK.ACQUIRE k a 1000 FENCE 50 LABEL second = 1",
            "0> REDLOCK.INSPECT k = fence 1 label first pttl 1000 held-ms 400 extensions 0 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "a repeated acquire or an extension never shortens a lock",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.ACQUIRE k a 10 = 1",
            "0> REDLOCK.EXTEND k a 10 = 1",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 1000 held-ms 0 extensions 1 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "a lock expires after its time to live and not before",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "pass 1000",
            "0> REDLOCK.ACQUIRE k b 1000 = nil",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 0 held-ms 1000 extensions 0 waiters 0 mode exclusive holders []",
            "pass 1",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.RELEASE k a = 0",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "after a lock has expired, its owner gets a new lock",
        &[
            "0> REDLOCK.ACQUIRE k a 10 LABEL old = 1",
            "pass 11",
            "0> REDLOCK.ACQUIRE k a 10 = 2",
            "0> REDLOCK.INSPECT k = fence 2 label - pttl 10 held-ms 0 extensions 0 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "extend moves the deadline for the owner only and creates nothing",
        &[
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.EXTEND k b 5000 = nil",
            "0> REDLOCK.EXTEND k a 5000 = 1",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 5000 held-ms 0 extensions 1 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "extend raises the fence to the floor and never lowers it",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.EXTEND k a 1000 FENCE 9 = 9",
            "0> REDLOCK.EXTEND k a 1000 FENCE 3 = 9",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = 10",
        ],
    ),
    (
        "a floor raises the fence of a grant, by a bounded step",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 40 = 40",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 7 = 41",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 9223372036854775807 = 4611686018427387904",
            "0> REDLOCK.EXTEND k a 1000 FENCE 9223372036854775807 = 4611686018428436480",
        ],
    ),
    (
        "the fence of a release raises the next fence, if the owner holds the lock",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.RELEASE k a FENCE 20 = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = 21",
            "0> REDLOCK.RELEASE k b FENCE 90 = 0",
            "0> REDLOCK.RELEASE k a FENCE 2 = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = 22",
        ],
    ),
    (
        "only the owner releases",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.RELEASE k b = 0",
            "0> REDLOCK.RELEASE k A = 0",
            "0> REDLOCK.ACQUIRE k b 1000 = nil",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.RELEASE k a = 0",
        ],
    ),
    (
        "owners are compared byte by byte",
        &[
            "0> REDLOCK.ACQUIRE k 0f8fad5b-d9cb-469f-a165-70867728950e 1000 = 1",
            "0> REDLOCK.RELEASE k 0F8FAD5B-D9CB-469F-A165-70867728950E = 0",
            "0> REDLOCK.RELEASE k 0f8fad5bd9cb469fa16570867728950e = 0",
            "0> REDLOCK.RELEASE k 0f8fad5b-d9cb-469f-a165-70867728950e = 1",
        ],
    ),
    (
        "a fence floor for one key does not change the fences of another key",
        &["0> REDLOCK.ACQUIRE k a 1000 FENCE 500 = 500", "0> REDLOCK.ACQUIRE other a 1000 = 1"],
    ),
    (
        "a tombstone rejects an acquire that arrives after its release on another connection",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.ACQUIRE k a 1000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 = 1",
            "1> REDLOCK.RELEASE k b = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = 2",
        ],
    ),
    (
        "a tombstone ends after ten seconds",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "pass 10000",
            "1> REDLOCK.ACQUIRE k a 1000 = nil",
            "pass 1",
            "1> REDLOCK.ACQUIRE k a 1000 = 1",
        ],
    ),
    (
        "a release that freed a lock leaves no tombstone",
        &["0> REDLOCK.ACQUIRE k a 1000 = 1", "0> REDLOCK.RELEASE k a = 1", "1> REDLOCK.ACQUIRE k a 1000 = 2"],
    ),
    (
        "an administrator breaks a lock without its owner, and its fence is not reused",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "9> REDLOCK.BREAK k = 1",
            "9> REDLOCK.BREAK k = nil",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "a break leaves a tombstone for the owner and for no other client",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "9> REDLOCK.BREAK k = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = nil",
            "pass 10001",
            "0> REDLOCK.ACQUIRE k a 1000 = 2",
        ],
    ),
    (
        "a break with a fence spares a later holder",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
            "9> REDLOCK.BREAK k FENCE 1 = nil",
            "0> REDLOCK.EXTEND k b 1000 = 2",
            "9> REDLOCK.BREAK k fence 2 = 2",
            "0> REDLOCK.EXTEND k b 1000 = nil",
        ],
    ),
    (
        "a break frees no expired lock, no plain string and no key of another type",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "pass 1001",
            "9> REDLOCK.BREAK k = nil",
            "string s",
            "9> REDLOCK.BREAK s = nil",
            "0> REDLOCK.ACQUIRE s a 1000 = nil",
            "list l",
            "9> REDLOCK.BREAK l = WRONGTYPE",
            "9> REDLOCK.BREAK k FENCE = REDLOCKARG",
            "9> REDLOCK.BREAK k FENCE x = REDLOCKARG",
            "9> REDLOCK.BREAK k now = REDLOCKARG",
            "9> REDLOCK.BREAK = ERR",
        ],
    ),
    (
        "a broken lock passes to the first waiter",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "1> REDLOCK.ACQUIRE k b 1000 WAIT 5 60000 one = 1000 1 0",
            "9> REDLOCK.BREAK k FENCE 1 = 1",
            "heard one grant 5 2 b k",
            "1> REDLOCK.EXTEND k b 1000 = 2",
        ],
    ),
    (
        "a plain string counts as held",
        &[
            "string k",
            "0> REDLOCK.ACQUIRE k a 1000 = nil",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.RELEASE k a = 0",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.MACQUIRE 2 j k a 1000 = nil",
            "0> REDLOCK.INSPECT j = nil",
            "del k",
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
        ],
    ),
    (
        "a key of another type is an error",
        &[
            "list k",
            "0> REDLOCK.ACQUIRE k a 1000 = WRONGTYPE",
            "0> REDLOCK.EXTEND k a 1000 = WRONGTYPE",
            "0> REDLOCK.RELEASE k a = WRONGTYPE",
            "0> REDLOCK.INSPECT k = WRONGTYPE",
            "0> REDLOCK.MACQUIRE 2 j k a 1000 = WRONGTYPE",
            "0> REDLOCK.MEXTEND 2 j k a 1000 = WRONGTYPE",
            "0> REDLOCK.MRELEASE 2 j k a = WRONGTYPE",
            "0> REDLOCK.INSPECT j = nil",
        ],
    ),
    (
        "DEL breaks a lock",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "del k",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "several keys: all or none, one fence",
        &[
            "0> REDLOCK.ACQUIRE b x 1000 FENCE 6 = 6",
            "0> REDLOCK.MACQUIRE 3 a b c m 1000 = nil",
            "0> REDLOCK.INSPECT a = nil",
            "0> REDLOCK.RELEASE b x = 1",
            "0> REDLOCK.MACQUIRE 3 a b c m 1000 LABEL set = 7",
            "0> REDLOCK.INSPECT a = fence 7 label set pttl 1000 held-ms 0 extensions 0 waiters 0 mode exclusive holders []",
            "0> REDLOCK.ACQUIRE c x 1000 = nil",
            "0> REDLOCK.MRELEASE 3 a b c m = 1",
            "0> REDLOCK.ACQUIRE c x 1000 = 8",
        ],
    ),
    (
        "a repeated acquire of several keys keeps the lock while it has all its keys",
        &[
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 1",
            "pass 300",
            "0> REDLOCK.MACQUIRE 2 b a m 1000 = 1",
            "0> REDLOCK.INSPECT a = fence 1 label - pttl 1000 held-ms 300 extensions 0 waiters 0 mode exclusive holders []",
            "del b",
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 2",
            "0> REDLOCK.EXTEND a m 1000 = 2",
        ],
    ),
    (
        "keys acquired one by one become one lock with a new fence",
        &[
            "0> REDLOCK.ACQUIRE a m 5000 FENCE 3 = 3",
            "0> REDLOCK.ACQUIRE b m 1000 = 1",
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 4",
            "0> REDLOCK.INSPECT a = fence 4 label - pttl 5000 held-ms 0 extensions 0 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "several keys are extended and released together or not at all",
        &[
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 1",
            "0> REDLOCK.MEXTEND 2 a b m 5000 FENCE 4 = 4",
            "0> REDLOCK.MEXTEND 3 a b c m 9000 = nil",
            "0> REDLOCK.INSPECT a = fence 4 label - pttl 5000 held-ms 0 extensions 1 waiters 0 mode exclusive holders []",
            "0> REDLOCK.MRELEASE 3 a b c m = 0",
            "0> REDLOCK.ACQUIRE a x 1000 = nil",
            "0> REDLOCK.MRELEASE 2 a b m FENCE 10 = 1",
            "0> REDLOCK.ACQUIRE b x 1000 = 11",
        ],
    ),
    (
        "extending keys with different fences gives all of them the largest",
        &[
            "0> REDLOCK.ACQUIRE a m 1000 FENCE 3 = 3",
            "0> REDLOCK.ACQUIRE b m 1000 = 1",
            "0> REDLOCK.MEXTEND 2 a b m 1000 = 3",
            "0> REDLOCK.RELEASE a m = 1",
            "0> REDLOCK.EXTEND b m 1000 FENCE 2 = 3",
            "0> REDLOCK.RELEASE b m = 1",
            "0> REDLOCK.ACQUIRE b x 1000 = 4",
        ],
    ),
    (
        "the same key twice is one key",
        &[
            "0> REDLOCK.MACQUIRE 3 a b a m 1000 = 1",
            "0> REDLOCK.MEXTEND 2 a a m 1000 = 1",
            "0> REDLOCK.MRELEASE 3 b b a m = 1",
            "0> REDLOCK.INSPECT a = nil",
        ],
    ),
    (
        "names and options are read in any case",
        &[
            "0> redlock.acquire k a 1000 label x fence 3 = 3",
            "0> Redlock.Extend k a 1000 Fence 4 = 4",
            "0> redlock.release k a fence 5 = 1",
        ],
    ),
    (
        "a bad time to live is an error",
        &[
            "0> REDLOCK.ACQUIRE k a 0 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a -1 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 3600001 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 1.5 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 01 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a ten = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 99999999999999999999 = REDLOCKTTL",
            "0> REDLOCK.MACQUIRE 1 k a 0 = REDLOCKTTL",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.ACQUIRE k a 3600000 = 1",
            "0> REDLOCK.EXTEND k a 0 = REDLOCKTTL",
            "0> REDLOCK.MEXTEND 1 k a x = REDLOCKTTL",
        ],
    ),
    (
        "bad arguments are errors and change nothing",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 FENCE = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE x = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE -1 = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 9223372036854775808 = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 1 FENCE 1 = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 LABEL x LABEL y = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 LABEL = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 SOON = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 WAIT 1 1000 = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 WAIT 0 1000 channel = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 WAIT 1 0 channel = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 WAIT 1 1000 a:b = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 STAMP 1 = REDLOCKARG",
            "0> REDLOCK.MACQUIRE 0 k a 1000 = REDLOCKARG",
            "0> REDLOCK.MACQUIRE x k a 1000 = REDLOCKARG",
            "0> REDLOCK.MACQUIRE 7 k a 1000 = REDLOCKARG",
            "0> REDLOCK.MACQUIRE 1025 k a 1000 = REDLOCKARG",
            "0> REDLOCK.EXTEND k a 1000 LABEL x = REDLOCKARG",
            "0> REDLOCK.RELEASE k a SOON = REDLOCKARG",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
        ],
    ),
    (
        "a wrong number of arguments is an error",
        &[
            "0> REDLOCK.ACQUIRE k a = ERR",
            "0> REDLOCK.EXTEND k a = ERR",
            "0> REDLOCK.RELEASE k = ERR",
            "0> REDLOCK.INSPECT = ERR",
            "0> REDLOCK.INSPECT k k = ERR",
            "0> REDLOCK.NODE x = ERR",
            "0> REDLOCK.MACQUIRE 2 k j a = ERR",
            "0> REDLOCK.MRELEASE 2 k a = ERR",
            "0> REDLOCK.MEXTEND 1 k a = ERR",
        ],
    ),
    (
        "a queued request gets the time left and the holder's ticket; hand-offs follow the order of tickets",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 WAIT 5 60000 zero = 1",
            "1> REDLOCK.ACQUIRE k b 1000 WAIT 20 60000 one = 1000 1 5",
            "2> REDLOCK.ACQUIRE k c 1000 WAIT 10 60000 two = 1000 1 5",
            "1> REDLOCK.ACQUIRE k b 1000 WAIT 20 60000 one = 1000 2 5",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 1000 held-ms 0 extensions 0 waiters 2 mode exclusive holders []",
            "0> REDLOCK.RELEASE k a = 1",
            "heard two grant 10 2 c k",
            "0> REDLOCK.INSPECT k = fence 2 label - pttl 100 held-ms 0 extensions 0 waiters 1 mode exclusive holders []",
            "2> REDLOCK.EXTEND k c 1000 = 2",
            "2> REDLOCK.RELEASE k c = 1",
            "heard one grant 20 3 b k",
            "1> REDLOCK.ACQUIRE k b 1000 WAIT 20 60000 one = 3",
            "1> REDLOCK.RELEASE k b = 1",
            "0> REDLOCK.INSPECT k = nil",
        ],
    ),
    (
        "a lock that is not claimed in time goes to the next waiter",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "1> REDLOCK.ACQUIRE k b 1000 LABEL first WAIT 1 60000 one = 1000 1 0",
            "2> REDLOCK.ACQUIRE k c 1000 FENCE 9 LABEL second WAIT 2 60000 two STAMP 7 CLAIM 500 = 1000 2 0",
            "pass 1001",
            "heard one grant 1 2 b k",
            "0> REDLOCK.INSPECT k = fence 2 label first pttl 100 held-ms 0 extensions 0 waiters 1 mode exclusive holders []",
            "pass 101",
            "heard two stamped 2 9 7 1102 500 c k",
            "1> REDLOCK.EXTEND k b 1000 = nil",
            "2> REDLOCK.EXTEND k c 1000 = 9",
            "0> REDLOCK.INSPECT k = fence 9 label second pttl 1000 held-ms 0 extensions 1 waiters 0 mode exclusive holders []",
        ],
    ),
    (
        "no request overtakes a waiter, and a waiter that has left gets no lock",
        &[
            "string k",
            "1> REDLOCK.ACQUIRE k b 1000 WAIT 1 60000 one = -1 1 0",
            "2> REDLOCK.ACQUIRE k c 1000 WAIT 2 60000 two = -1 2 0",
            "3> REDLOCK.ACQUIRE k d 1000 WAIT 3 60000 three = -1 3 0",
            "4> REDLOCK.ACQUIRE k e 1000 WAIT 4 50 four = -1 4 0",
            "1> REDLOCK.RELEASE k b = 0",
            "close 2",
            "del k",
            "heard three grant 3 1 d k",
            "0> REDLOCK.ACQUIRE k f 1000 = nil",
            "3> REDLOCK.EXTEND k d 1000 = 1",
            "pass 51",
            "3> REDLOCK.RELEASE k d = 1",
            "0> REDLOCK.ACQUIRE k f 1000 = 2",
        ],
    ),
    (
        "a request waits for several keys at once",
        &[
            "0> REDLOCK.ACQUIRE x a 1000 = 1",
            "0> REDLOCK.ACQUIRE y a 2000 WAIT 9 1 zero = 1",
            "1> REDLOCK.MACQUIRE 2 x y b 1000 LABEL both WAIT 1 60000 one = 2000 1 9",
            "0> REDLOCK.RELEASE x a = 1",
            "2> REDLOCK.ACQUIRE x c 1000 = nil",
            "2> REDLOCK.ACQUIRE x c 1000 WAIT 2 60000 two = 0 2 0",
            "0> REDLOCK.RELEASE y a = 1",
            "heard one grant 1 2 b x",
            "1> REDLOCK.MEXTEND 2 x y b 1000 = 2",
            "0> REDLOCK.INSPECT y = fence 2 label both pttl 1000 held-ms 0 extensions 1 waiters 0 mode exclusive holders []",
            "1> REDLOCK.MRELEASE 2 x y b = 1",
            "heard two grant 2 3 c x",
        ],
    ),
    (
        "readers share a lock under one fence, and the next holder gets a larger one",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 2000 shared LABEL second = 1",
            "pass 100",
            "2> REDLOCK.ACQUIRE k c 500 SHARED = 1",
            "0> REDLOCK.EXTEND k a 1000 = 1",
            "0> REDLOCK.INSPECT k = fence 1 label second pttl 1900 held-ms 100 extensions 0 waiters 0 mode shared \
             holders [[label - pttl 1000 held-ms 100 extensions 1] \
             [label second pttl 1900 held-ms 100 extensions 0] [label - pttl 500 held-ms 0 extensions 0]]",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.RELEASE k b = 1",
            "3> REDLOCK.ACQUIRE k w 1000 = nil",
            "2> REDLOCK.RELEASE k c = 1",
            "0> REDLOCK.INSPECT k = nil",
            "3> REDLOCK.ACQUIRE k w 1000 = 2",
        ],
    ),
    (
        "shared and exclusive locks exclude each other, also for one owner",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = nil",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = nil",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 2",
            "0> REDLOCK.ACQUIRE k a 1000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 = nil",
            "0> REDLOCK.MACQUIRE 2 j k a 1000 = nil",
            "0> REDLOCK.INSPECT j = nil",
            "0> REDLOCK.EXTEND k b 1000 = nil",
            "0> REDLOCK.RELEASE k b = 0",
            "0> REDLOCK.RELEASE k a = 1",
            "2> REDLOCK.ACQUIRE k c 1000 = 3",
        ],
    ),
    (
        "a repeated shared acquire extends the lease of its owner only",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 LABEL one SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 1000 LABEL two SHARED = 1",
            "pass 400",
            "0> REDLOCK.ACQUIRE k a 1000 LABEL other SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 10 SHARED = 1",
            "0> REDLOCK.INSPECT k = fence 1 label one pttl 1000 held-ms 400 extensions 0 waiters 0 mode shared \
             holders [[label one pttl 1000 held-ms 400 extensions 0] [label two pttl 600 held-ms 400 extensions 0]]",
        ],
    ),
    (
        "a floor raises the fence of all readers and never lowers it",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 5 SHARED = 5",
            "1> REDLOCK.ACQUIRE k b 1000 FENCE 3 SHARED = 5",
            "2> REDLOCK.ACQUIRE k c 1000 FENCE 7 SHARED = 7",
            "0> REDLOCK.EXTEND k a 1000 = 7",
            "1> REDLOCK.EXTEND k b 1000 FENCE 9 = 9",
            "2> REDLOCK.ACQUIRE k c 1000 SHARED = 9",
            "2> REDLOCK.ACQUIRE k c 1000 FENCE 11 SHARED = 11",
            "0> REDLOCK.EXTEND k a 1000 FENCE 8 = 11",
            "9> REDLOCK.BREAK k FENCE 9 = nil",
            "9> REDLOCK.BREAK k FENCE 11 = 11",
            "3> REDLOCK.ACQUIRE k w 1000 = 12",
        ],
    ),
    (
        "each reader has its own deadline, and a key whose readers have all expired is free",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 2000 SHARED = 1",
            "pass 1001",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.EXTEND k b 2000 = 1",
            "0> REDLOCK.ACQUIRE k c 1000 SHARED = 1",
            "pass 2001",
            "0> REDLOCK.INSPECT k = nil",
            "1> REDLOCK.EXTEND k b 2000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = 2",
            "pass 1001",
            "1> REDLOCK.ACQUIRE k w 1000 = 3",
        ],
    ),
    (
        "an expired reader joins again",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 5000 SHARED = 1",
            "pass 1001",
            "0> REDLOCK.ACQUIRE k a 1000 LABEL again SHARED = 1",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 3999 held-ms 1001 extensions 0 waiters 0 mode shared \
             holders [[label - pttl 3999 held-ms 1001 extensions 0] [label again pttl 1000 held-ms 0 extensions 0]]",
        ],
    ),
    (
        "a reader does not overtake a waiting writer, and readers up to the next writer are granted together",
        &[
            "0> REDLOCK.ACQUIRE k a 9000 WAIT 1 60000 zero SHARED = 1",
            "1> REDLOCK.ACQUIRE k w 1000 WAIT 5 60000 one = 9000 1 1",
            "2> REDLOCK.ACQUIRE k b 1000 WAIT 3 60000 two SHARED = 1",
            "2> REDLOCK.ACQUIRE k c 1000 SHARED = nil",
            "3> REDLOCK.ACQUIRE k d 1000 WAIT 6 60000 three STAMP 4 CLAIM 300 SHARED = 9000 2 1",
            "4> REDLOCK.ACQUIRE k e 1000 WAIT 7 60000 four SHARED FENCE 6 = 9000 3 1",
            "5> REDLOCK.ACQUIRE k x 1000 WAIT 8 60000 five = 9000 4 1",
            "6> REDLOCK.ACQUIRE k f 1000 WAIT 9 60000 six SHARED = 9000 5 1",
            "0> REDLOCK.RELEASE k a = 1",
            "2> REDLOCK.RELEASE k b = 1",
            "heard one grant 5 2 w k",
            "1> REDLOCK.EXTEND k w 1000 = 2",
            "1> REDLOCK.RELEASE k w = 1",
            "heard three stamped 6 3 4 0 300 d k",
            "heard four grant 7 6 e k",
            "3> REDLOCK.EXTEND k d 1000 = 6",
            "4> REDLOCK.ACQUIRE k e 1000 WAIT 7 60000 four SHARED = 6",
            "0> REDLOCK.ACQUIRE k g 1000 SHARED = nil",
            "3> REDLOCK.RELEASE k d = 1",
            "4> REDLOCK.RELEASE k e = 1",
            "heard five grant 8 7 x k",
            "5> REDLOCK.RELEASE k x = 1",
            "heard six grant 9 8 f k",
        ],
    ),
    (
        "when a waiting writer leaves, the readers behind it join at once",
        &[
            "0> REDLOCK.ACQUIRE k a 9000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k w 1000 WAIT 5 60000 one = 9000 1 0",
            "2> REDLOCK.ACQUIRE k b 1000 WAIT 6 60000 two SHARED = 9000 2 0",
            "3> REDLOCK.ACQUIRE k c 1000 WAIT 7 60000 three SHARED = 9000 3 0",
            "1> REDLOCK.RELEASE k w = 0",
            "heard two grant 6 1 b k",
            "heard three grant 7 1 c k",
            "1> REDLOCK.ACQUIRE k w 1000 WAIT 8 60000 one = 9000 1 0",
            "2> REDLOCK.ACQUIRE k d 1000 WAIT 9 60000 two SHARED = 9000 2 0",
            "1> REDLOCK.ACQUIRE k w 1000 WAIT 10 60000 one = 9000 2 0",
            "heard two grant 9 1 d k",
        ],
    ),
    (
        "a reader that does not claim its lock in time leaves the others alone",
        &[
            "0> REDLOCK.ACQUIRE k w 1000 = 1",
            "1> REDLOCK.ACQUIRE k a 1000 WAIT 1 60000 one SHARED = 1000 1 0",
            "2> REDLOCK.ACQUIRE k b 1000 WAIT 2 60000 two SHARED = 1000 2 0",
            "3> REDLOCK.ACQUIRE k x 1000 WAIT 3 60000 three = 1000 3 0",
            "0> REDLOCK.RELEASE k w = 1",
            "heard one grant 1 2 a k",
            "heard two grant 2 2 b k",
            "2> REDLOCK.EXTEND k b 1000 = 2",
            "pass 101",
            "1> REDLOCK.EXTEND k a 1000 = nil",
            "pass 900",
            "heard three grant 3 3 x k",
        ],
    ),
    (
        "a break frees a shared lock for all its holders and rejects late requests of each",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = 1",
            "9> REDLOCK.BREAK k = 1",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "1> REDLOCK.EXTEND k b 1000 = nil",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = nil",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = nil",
            "2> REDLOCK.ACQUIRE k c 1000 = 2",
        ],
    ),
    (
        "a tombstone rejects a late shared request, to begin a lock and to join one",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.ACQUIRE k a 1000 SHARED = nil",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k a 1000 SHARED = nil",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
        ],
    ),
    (
        "the fence of a release raises the next lock and not the one that others still share",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = 1",
            "0> REDLOCK.RELEASE k a FENCE 20 = 1",
            "2> REDLOCK.ACQUIRE k c 1000 SHARED = 1",
            "1> REDLOCK.RELEASE k b = 1",
            "2> REDLOCK.RELEASE k c = 1",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 21",
        ],
    ),
    (
        "a plain string, DEL and a key of another type are for readers what they are for writers",
        &[
            "string s",
            "0> REDLOCK.ACQUIRE s a 1000 SHARED = nil",
            "1> REDLOCK.ACQUIRE s a 1000 WAIT 1 60000 one SHARED = -1 1 0",
            "1> REDLOCK.ACQUIRE s b 1000 WAIT 2 60000 two SHARED = -1 2 0",
            "del s",
            "heard one grant 1 1 a s",
            "heard two grant 2 1 b s",
            "list l",
            "0> REDLOCK.ACQUIRE l a 1000 SHARED = WRONGTYPE",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "0> REDLOCK.ACQUIRE k b 1000 SHARED = 1",
            "del k",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.EXTEND k b 1000 = nil",
            "0> REDLOCK.ACQUIRE k c 1000 SHARED = 2",
        ],
    ),
    (
        "several keys cannot be acquired shared, and the refusal changes nothing",
        &[
            "0> REDLOCK.MACQUIRE 2 j k a 1000 SHARED = REDLOCKARG",
            "0> REDLOCK.MACQUIRE 1 k a 1000 LABEL x SHARED = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED SHARED = REDLOCKARG",
            "0> REDLOCK.ACQUIRE k a 0 SHARED = REDLOCKTTL",
            "0> REDLOCK.EXTEND k a 1000 SHARED = REDLOCKARG",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
        ],
    ),
    (
        "an owner extends and releases its shared and its exclusive locks together",
        &[
            "0> REDLOCK.ACQUIRE j a 1000 FENCE 4 = 4",
            "0> REDLOCK.ACQUIRE k a 1000 SHARED = 1",
            "1> REDLOCK.ACQUIRE k b 1000 SHARED = 1",
            "1> REDLOCK.MEXTEND 2 j k b 1000 = nil",
            "0> REDLOCK.MEXTEND 2 j k a 2000 FENCE 6 = 6",
            "1> REDLOCK.EXTEND k b 1000 = 6",
            "0> REDLOCK.MRELEASE 2 j k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = nil",
            "1> REDLOCK.RELEASE k b = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = 7",
        ],
    ),
    (
        "a client cannot call the replication command",
        &["0> REDLOCK.APPLY k a 1 1000 = ERR", "0> REDLOCK.INSPECT k = nil"],
    ),
];
