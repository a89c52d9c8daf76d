//! A fenced write in Redis: the server rejects the writes of a holder whose lock another client has acquired
//! since.
//!
//! The locks of this example are in memory. Only the data that they protect is in Redis (or Valkey), version
//! 7.0 or later. That server needs no module:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example fenced_write_redis
//! ```
//!
//! The example writes two keys of its own and deletes them at the end.

use redis::{Cmd, Connection, RedisError, RedisResult, Value, cmd, from_redis_value};
use redlock_client::LockManager;
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::block_in_place;

/// Writes the whole value with one plain command.
///
/// The value is the last entry of a stream, and the fence is the first half of the entry's id. A stream
/// rejects an entry whose id is below that of the last entry, and compares all 64 bits. This is the check,
/// and it is part of the write.
///
/// - `*` makes the server choose the second half, so that the same holder may write again.
/// - `MAXLEN = 1` deletes the earlier values. Without it the stream is the history, in order of the holders.
/// - A stream keeps its last id when it is trimmed. It loses the last id when the key is deleted.
pub fn write(key: &str, value: &str, fence: u64) -> Cmd {
    let mut command = cmd("XADD");
    command.arg(key).arg("MAXLEN").arg("=").arg(1).arg(format!("{fence}-*")).arg("value").arg(value);
    command
}

/// Reads the whole value, for display only. No write may depend on it: an older holder may still write after
/// this read. A write that depends on a read needs a fenced read such as [`get_field`].
pub fn read(key: &str) -> Cmd {
    let mut command = cmd("XREVRANGE");
    command.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
    command
}

/// A script for data that is not a stream: it checks the fence and writes or reads in one step. Here the data
/// is a field of a hash, and another field of the hash has the largest fence. `KEYS[1]` is the hash. `ARGV`
/// is the fence, the field, and the new value.
///
/// Without a new value the script reads the field and still stores the fence, so that the hash rejects older
/// holders from then on. After a plain `HGET` an older holder could still write, and the next write, which
/// depends on the read, would undo that.
///
/// Numbers in a script are exact up to 2^53 only, and fences can be larger. So the script compares them as
/// text without leading zeros: the longer one is larger, and of two with equal length the one that sorts
/// later.
pub const FENCED_FIELD: &str = "
    local offered, newest = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'
    if #offered < #newest or (#offered == #newest and offered < newest) then
        return redis.error_reply('STALE fence ' .. offered .. ' is older than ' .. newest)
    end
    redis.call('HSET', KEYS[1], 'fence', offered)
    if not ARGV[3] then
        return redis.call('HGET', KEYS[1], ARGV[2])
    end
    redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
    return redis.status_reply('OK')";

/// Writes one field of a hash. The field must not be `fence`.
pub fn set_field(key: &str, field: &str, value: &str, fence: u64) -> Cmd {
    let mut command = get_field(key, field, fence);
    command.arg(value);
    command
}

/// Reads one field of a hash, for a later write under the same lock; nil if the field is missing.
pub fn get_field(key: &str, field: &str, fence: u64) -> Cmd {
    let mut command = cmd("EVAL");
    // A program that runs the script often sends it once and then only its digest, as `redis::Script` does.
    command.arg(FENCED_FIELD).arg(1).arg(key).arg(fence).arg(field);
    command
}

/// Whether the server rejected a read or a write because of a newer holder. Any other error has another
/// cause.
pub fn is_stale(error: &RedisError) -> bool {
    let of_stream =
        error.detail().is_some_and(|text| text.contains("equal or smaller than the target stream"));
    of_stream || error.code() == Some("STALE")
}

/// Runs the example against the server at `REDIS_URL`.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = env::var("REDIS_URL") else {
        println!("This example needs a Redis or Valkey server. Run it with, for example:");
        println!("    REDIS_URL=redis://127.0.0.1:6379 cargo run --example fenced_write_redis");
        return Ok(());
    };
    run(&url).await
}

/// Two holders. The first one writes again after it has lost its lock.
pub async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    // The async connections of the `redis` crate take the same commands with `query_async`.
    let mut store = redis::Client::open(url)?.get_connection()?;

    let locks = LockManager::in_memory(5);
    let ttl = Duration::from_millis(500);
    // Fences of real nodes never decrease. Nodes in memory start again with each run, so each run uses new
    // keys.
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let (document, order) =
        (format!("redlock-example:document:{run}"), format!("redlock-example:order:{run}"));

    let first = locks.acquire("document", ttl).await?;
    send(&mut store, &write(&document, "a draft", first.fence()))?;
    send(&mut store, &write(&document, "a better draft", first.fence()))?;
    send(&mut store, &set_field(&order, "state", "paid", first.fence()))?;
    println!("fence {}: written", first.fence());

    // The first holder is delayed, its lock expires, and the next holder writes.
    first.lost().await;
    let second = locks.acquire("document", ttl).await?;
    send(&mut store, &write(&document, "a corrected draft", second.fence()))?;
    let state: String = from_redis_value(send(&mut store, &get_field(&order, "state", second.fence()))?)?;
    send(&mut store, &set_field(&order, "state", &format!("{state} and shipped"), second.fence()))?;
    println!("fence {}: written by the next holder", second.fence());

    // The first holder continues with its stale fence.
    for late in [
        write(&document, "the last word", first.fence()),
        set_field(&order, "state", "cancelled", first.fence()),
        get_field(&order, "state", first.fence()),
    ] {
        match send(&mut store, &late) {
            Err(error) if is_stale(&error) => println!("the first holder is rejected: {error}"),
            Err(other) => return Err(other.into()),
            Ok(_) => return Err("a stale write went through".into()),
        }
    }
    let entries: Vec<(String, HashMap<String, String>)> =
        from_redis_value(send(&mut store, &read(&document))?)?;
    println!("the document is {entries:?}");

    send(&mut store, cmd("DEL").arg(&document).arg(&order))?;
    second.release().await;
    Ok(())
}

/// Sends a command to the server without blocking the other tasks of the runtime.
fn send(store: &mut Connection, command: &Cmd) -> RedisResult<Value> {
    block_in_place(|| command.query(store))
}
