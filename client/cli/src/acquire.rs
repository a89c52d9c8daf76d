//! `redlock acquire`: takes a lock and leaves it held.

use crate::args::{AcquireArgs, CommonArgs};
use crate::config::Config;
use crate::duration::millis;
use crate::exit::{Code, ExitError};
use crate::obtain::{Obtained, obtain};
use crate::output::Printer;
use crate::run::signals::Interrupts;
use crate::ticket::OwnerFile;
use redlock_client::Detached;
use serde_json::json;
use std::time::Duration;

pub(crate) async fn main(
    common: &CommonArgs,
    args: &AcquireArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ttl = config.ttl(args.ttl);
    let locks = config.locker(args.label.as_deref(), args.wait)?;
    let file = args.owner_file.as_deref().map(OwnerFile::create).transpose()?;
    let mut interrupts = Interrupts::listen()?;
    let guard = match obtain(&locks, &args.resource, ttl, args.wait, &mut interrupts).await? {
        Obtained::Lock(guard) => guard,
        Obtained::Interrupted(code) => return Ok(code),
    };
    let lock = guard.detach();
    if let Err(failure) = hand_over(&lock, file, args, ttl, output) {
        // A lock that nobody can extend or free is of no use to anybody.
        let _ = locks.release_detached(&lock).await;
        return Err(failure);
    }
    // Stragglers among the nodes get what was sent to them.
    locks.flush().await;
    Ok(Code::Success)
}

/// Hands the lock to whoever asked: the one place where an owner is printed.
fn hand_over(
    lock: &Detached,
    file: Option<OwnerFile<'_>>,
    args: &AcquireArgs,
    ttl: Duration,
    output: &Printer,
) -> Result<(), ExitError> {
    let is_printed = file.is_none();
    if let Some(file) = file {
        file.write(&lock.owner, lock.fence)?;
    }
    let text = if output.is_json {
        let mut result = json!({
            "resource": args.resource,
            "fence": lock.fence,
            "ttl_ms": millis(ttl),
            "valid_ms": millis(lock.remaining),
        });
        if is_printed {
            result["owner"] = json!(lock.owner.expose());
        }
        result.to_string()
    } else {
        let owner =
            if is_printed { format!("REDLOCK_OWNER={}\n", lock.owner.expose()) } else { String::new() };
        format!("{owner}REDLOCK_FENCE={}\nREDLOCK_TTL_MS={}", lock.fence, millis(ttl))
    };
    output.deliver(&text)
}
