//! Bytes of one held lock.

use redlock_tests::{Brand, Server};

use crate::names::{key, owner};
use crate::report::{Report, figure};

const LOCKS: usize = 100_000;

/// The length of the owners that redlock-client sends.
const CLIENT_OWNER: usize = 16;

pub(crate) fn measure(report: &mut Report, plain: &Server, locks: &Server) {
    let string = bytes_each(plain, |key, owner| {
        ["SET", key, owner, "NX", "PX", "3600000"].map(str::to_owned).to_vec()
    });
    let lock = bytes_each(locks, |key, owner| {
        ["REDLOCK.ACQUIRE", key, &owner[..CLIENT_OWNER], "3600000"].map(str::to_owned).to_vec()
    });
    report.section(
        "memory",
        format!(
            "One held lock: {LOCKS} of them, keys of 17 bytes, from used_memory. A string has a UUID as text, 36 \
             bytes, as most libraries write; a lock has an owner of {CLIENT_OWNER} bytes, as redlock-client sends"
        ),
    );
    report.table(
        &["", "bytes", "x string"],
        &[
            vec!["string with a TTL".into(), figure(string, 1), figure(1.0, 2)],
            vec!["lock".into(), figure(lock, 1), figure(lock / string, 2)],
        ],
    );
    // Valkey stores a string and its deadline in one allocation with the key; a module cannot.
    let at_most = if plain.flavor().brand == Brand::Valkey { 1.5 } else { 1.05 };
    report.at_most("bytes against a string with a TTL", lock / string, at_most);
}

fn bytes_each(server: &Server, take: impl Fn(&str, &str) -> Vec<String>) -> f64 {
    let mut wire = server.connect();
    wire.call(&["FLUSHALL"]);
    let used = || -> f64 {
        server
            .info("memory", "used_memory")
            .and_then(|used| used.parse().ok())
            .expect("INFO memory has used_memory")
    };
    let before = used();
    for first in (0..LOCKS).step_by(1_000) {
        wire.pipeline((first..first + 1_000).map(|number| take(&key(number), &owner(number))).collect());
    }
    let bytes = (used() - before) / LOCKS as f64;
    wire.call(&["FLUSHALL"]);
    bytes
}
