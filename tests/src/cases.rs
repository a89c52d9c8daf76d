//! The contract of one node as a table: what is sent, what comes back.
//!
//! A line of a case is `connection> words` for a command on connection 0 to 9, or one of `pass MS`,
//! `del KEY`, `string KEY`, `list KEY`. After `=` stands the answer: an integer, `nil`, the first word of
//! an error, or the fields of a map.

/// A case: what it shows, and its lines.
pub type Case = (&'static str, &'static [&'static str]);

/// All cases. Each begins with an empty node at rest.
pub const CASES: &[Case] = &[
    (
        "a free lock is granted, fences start at 1 and grow",
        &["0> REDLOCK.ACQUIRE k a 1000 = 1", "0> REDLOCK.RELEASE k a = 1", "0> REDLOCK.ACQUIRE k b 1000 = 2"],
    ),
    (
        "a held lock is refused, whoever else asks",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 FENCE 99 LABEL x = nil",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "the same owner again: the same lock, the same fence, longer",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 LABEL first = 1",
            "pass 400",
            "1> REDLOCK.ACQUIRE k a 1000 FENCE 50 LABEL second = 1",
            "0> REDLOCK.INSPECT k = fence 1 label first pttl 1000 held-ms 400 extensions 0 waiters 0",
        ],
    ),
    (
        "a repeated acquire never shortens",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.ACQUIRE k a 10 = 1",
            "0> REDLOCK.EXTEND k a 10 = 1",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 1000 held-ms 0 extensions 1 waiters 0",
        ],
    ),
    (
        "a lock is over after its time and not before",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "pass 1000",
            "0> REDLOCK.ACQUIRE k b 1000 = nil",
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 0 held-ms 1000 extensions 0 waiters 0",
            "pass 1",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.EXTEND k a 1000 = nil",
            "0> REDLOCK.RELEASE k a = 0",
            "0> REDLOCK.ACQUIRE k b 1000 = 2",
        ],
    ),
    (
        "an expired lock is a new one, for the same owner too",
        &[
            "0> REDLOCK.ACQUIRE k a 10 LABEL old = 1",
            "pass 11",
            "0> REDLOCK.ACQUIRE k a 10 = 2",
            "0> REDLOCK.INSPECT k = fence 2 label - pttl 10 held-ms 0 extensions 0 waiters 0",
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
            "0> REDLOCK.INSPECT k = fence 1 label - pttl 5000 held-ms 0 extensions 1 waiters 0",
        ],
    ),
    (
        "extend raises the fence to the floor, never down",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 = 1",
            "0> REDLOCK.EXTEND k a 1000 FENCE 9 = 9",
            "0> REDLOCK.EXTEND k a 1000 FENCE 3 = 9",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k b 1000 = 10",
        ],
    ),
    (
        "a floor lifts a grant, by a bounded step",
        &[
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 40 = 40",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 7 = 41",
            "0> REDLOCK.RELEASE k a = 1",
            "0> REDLOCK.ACQUIRE k a 1000 FENCE 9223372036854775807 = 4294967337",
            "0> REDLOCK.EXTEND k a 1000 FENCE 9223372036854775807 = 8589934633",
        ],
    ),
    (
        "a release tells the node what its holder has seen",
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
        "owners are compared byte by byte, however they are spelled",
        &[
            "0> REDLOCK.ACQUIRE k 0f8fad5b-d9cb-469f-a165-70867728950e 1000 = 1",
            "0> REDLOCK.RELEASE k 0F8FAD5B-D9CB-469F-A165-70867728950E = 0",
            "0> REDLOCK.RELEASE k 0f8fad5bd9cb469fa16570867728950e = 0",
            "0> REDLOCK.RELEASE k 0f8fad5b-d9cb-469f-a165-70867728950e = 1",
        ],
    ),
    (
        "work on one key leaves another's numbers alone",
        &["0> REDLOCK.ACQUIRE k a 1000 FENCE 500 = 500", "0> REDLOCK.ACQUIRE other a 1000 = 1"],
    ),
    (
        "a late acquire does not outlive its release",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "1> REDLOCK.ACQUIRE k a 1000 = nil",
            "1> REDLOCK.ACQUIRE k b 1000 = 1",
            "1> REDLOCK.RELEASE k b = 1",
            "0> REDLOCK.ACQUIRE k a 1000 = 2",
        ],
    ),
    (
        "the memory of releases ends",
        &[
            "0> REDLOCK.RELEASE k a = 0",
            "pass 10000",
            "1> REDLOCK.ACQUIRE k a 1000 = nil",
            "pass 1",
            "1> REDLOCK.ACQUIRE k a 1000 = 1",
        ],
    ),
    (
        "a release that freed something bars nobody",
        &["0> REDLOCK.ACQUIRE k a 1000 = 1", "0> REDLOCK.RELEASE k a = 1", "1> REDLOCK.ACQUIRE k a 1000 = 2"],
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
        "other types are refused",
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
        "an administrator's DEL breaks a lock",
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
            "0> REDLOCK.INSPECT a = fence 7 label set pttl 1000 held-ms 0 extensions 0 waiters 0",
            "0> REDLOCK.ACQUIRE c x 1000 = nil",
            "0> REDLOCK.MRELEASE 3 a b c m = 1",
            "0> REDLOCK.ACQUIRE c x 1000 = 8",
        ],
    ),
    (
        "several keys again: the same lock while it is whole",
        &[
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 1",
            "pass 300",
            "0> REDLOCK.MACQUIRE 2 b a m 1000 = 1",
            "0> REDLOCK.INSPECT a = fence 1 label - pttl 1000 held-ms 300 extensions 0 waiters 0",
            "del b",
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 2",
            "0> REDLOCK.EXTEND a m 1000 = 2",
        ],
    ),
    (
        "keys taken one by one become one lock with a new number",
        &[
            "0> REDLOCK.ACQUIRE a m 5000 FENCE 3 = 3",
            "0> REDLOCK.ACQUIRE b m 1000 = 1",
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 4",
            "0> REDLOCK.INSPECT a = fence 4 label - pttl 5000 held-ms 0 extensions 0 waiters 0",
        ],
    ),
    (
        "several keys are extended and released together or not at all",
        &[
            "0> REDLOCK.MACQUIRE 2 a b m 1000 = 1",
            "0> REDLOCK.MEXTEND 2 a b m 5000 FENCE 4 = 4",
            "0> REDLOCK.MEXTEND 3 a b c m 9000 = nil",
            "0> REDLOCK.INSPECT a = fence 4 label - pttl 5000 held-ms 0 extensions 1 waiters 0",
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
        "a bad time to live",
        &[
            "0> REDLOCK.ACQUIRE k a 0 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a -1 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 86400001 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 1.5 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 01 = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a ten = REDLOCKTTL",
            "0> REDLOCK.ACQUIRE k a 99999999999999999999 = REDLOCKTTL",
            "0> REDLOCK.MACQUIRE 1 k a 0 = REDLOCKTTL",
            "0> REDLOCK.INSPECT k = nil",
            "0> REDLOCK.ACQUIRE k a 86400000 = 1",
            "0> REDLOCK.EXTEND k a 0 = REDLOCKTTL",
            "0> REDLOCK.MEXTEND 1 k a x = REDLOCKTTL",
        ],
    ),
    (
        "bad words change nothing",
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
        "a wrong number of words",
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
        "copying effects is not for clients",
        &["0> REDLOCK.APPLY k a 1 1000 = ERR", "0> REDLOCK.INSPECT k = nil"],
    ),
];
