//! A fenced write in Redis itself: the server turns away a holder whose lock has gone to somebody else.
//!
//! The locks of this example live in memory; only what they protect is in Redis (or Valkey), from version
//! 7.0 on. No module is needed there:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example fenced_write_redis
//! ```
//!
//! It works on two keys of its own and deletes them at the end.

use redis::{Cmd, Connection, RedisError, RedisResult, Value, cmd, from_redis_value};
use redlock_client::LockManager;
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::block_in_place;

/// Writes the whole value, with one plain command.
///
/// The value is the last entry of a stream, and the fence is the first half of the entry's number. A stream
/// takes no entry whose number is below that of the last one, and compares all 64 bits: this is the check,
/// and it is part of the write. `*` lets the server count the second half, so that the same holder may write
/// again. `MAXLEN = 1` forgets the values before; without it the stream is the history, in order of the
/// holders. Trimming a stream does not forget its last number, deleting the key does.
pub fn write(key: &str, value: &str, fence: u64) -> Cmd {
    let mut command = cmd("XADD");
    command.arg(key).arg("MAXLEN").arg("=").arg(1).arg(format!("{fence}-*")).arg("value").arg(value);
    command
}

/// Reads the whole value, for somebody to look at. Nothing is to be written because of it: an older holder may still
/// write after this. What a later write builds on is read as by [`get_field`].
pub fn read(key: &str) -> Cmd {
    let mut command = cmd("XREVRANGE");
    command.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
    command
}

/// For data that is not a stream: checks the fence and writes or reads in one script, here a field of a hash that has
/// the newest fence in another field. `KEYS[1]` is the hash; `ARGV` is the fence, the field, and what to write to it.
///
/// Without the last one the field is read, and the fence left behind all the same: from here on older holders are shut
/// out. After a plain `HGET` one of them could still write, and the next write, which builds on what was read, would
/// undo that.
///
/// Numbers in a script are exact up to 2^53 only, and fences go further. As text without leading zeros, the
/// longer one is larger, and of two equally long ones the one that sorts later.
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

/// Writes one field of a hash, any but `fence`.
pub fn set_field(key: &str, field: &str, value: &str, fence: u64) -> Cmd {
    let mut command = get_field(key, field, fence);
    command.arg(value);
    command
}

/// Reads one field of a hash, as the ground for a later write under the same lock; nothing if it is not there.
pub fn get_field(key: &str, field: &str, fence: u64) -> Cmd {
    let mut command = cmd("EVAL");
    // A program that does so often sends the script once and then its digest: `redis::Script` does.
    command.arg(FENCED_FIELD).arg(1).arg(key).arg(fence).arg(field);
    command
}

/// Whether a read or a write was turned away because a newer holder has been there. Any other error is trouble of
/// another kind.
pub fn is_stale(error: &RedisError) -> bool {
    let of_stream =
        error.detail().is_some_and(|text| text.contains("equal or smaller than the target stream"));
    of_stream || error.code() == Some("STALE")
}

/// Runs against the server that `REDIS_URL` names.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = env::var("REDIS_URL") else {
        println!("This example writes to a Redis of yours. Run it with, for instance,");
        println!("    REDIS_URL=redis://127.0.0.1:6379 cargo run --example fenced_write_redis");
        return Ok(());
    };
    run(&url).await
}

/// Two holders, of which the first one comes back too late.
pub async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    // The crate's async connections take the same commands with `query_async`.
    let mut store = redis::Client::open(url)?.get_connection()?;

    let locks = LockManager::in_memory(5);
    let ttl = Duration::from_millis(500);
    // Real nodes never take a fence back. Nodes in memory start from nothing each time, so the keys are new
    // as well.
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let (document, order) =
        (format!("redlock-example:document:{run}"), format!("redlock-example:order:{run}"));

    let first = locks.acquire("document", ttl).await?;
    send(&mut store, &write(&document, "a draft", first.fence()))?;
    send(&mut store, &write(&document, "a better draft", first.fence()))?;
    send(&mut store, &set_field(&order, "state", "paid", first.fence()))?;
    println!("fence {}: written", first.fence());

    // The first holder is held up; its lock runs out, and the next holder writes.
    first.lost().await;
    let second = locks.acquire("document", ttl).await?;
    send(&mut store, &write(&document, "a corrected draft", second.fence()))?;
    let state: String = from_redis_value(send(&mut store, &get_field(&order, "state", second.fence()))?)?;
    send(&mut store, &set_field(&order, "state", &format!("{state} and shipped"), second.fence()))?;
    println!("fence {}: written by the next holder", second.fence());

    // The first one goes on where it was.
    for late in [
        write(&document, "the last word", first.fence()),
        set_field(&order, "state", "cancelled", first.fence()),
        get_field(&order, "state", first.fence()),
    ] {
        match send(&mut store, &late) {
            Err(error) if is_stale(&error) => println!("the first holder is turned away: {error}"),
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

/// Asks the server without keeping the runtime from its other tasks.
fn send(store: &mut Connection, command: &Cmd) -> RedisResult<Value> {
    block_in_place(|| command.query(store))
}
