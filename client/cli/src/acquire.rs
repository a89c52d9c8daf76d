//! `redlock acquire`: acquires a lock and leaves it held.

use crate::args::{AcquireArgs, CommonArgs};
use crate::config::Config;
use crate::duration::millis;
use crate::exit::{Code, ExitError};
use crate::holder::{EXCLUSIVE, OwnerFile, SHARED};
use crate::obtain::{Obtained, Wanted, obtain, settle};
use crate::output::Printer;
use crate::run::signals::Interrupts;
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
    let wanted = Wanted::new(std::slice::from_ref(&args.resource), args.shared)?;
    let guard = match obtain(&locks, wanted, ttl, args.wait, &mut interrupts).await? {
        Obtained::Lock(guard) => guard,
        Obtained::Interrupted(code) => return Ok(code),
    };
    let lock = guard.detach();
    if let Err(failure) = hand_over(&lock, file, args, ttl, output) {
        // The caller did not get the owner, so no client could extend or release this lock.
        let _ = locks.release_detached(&lock).await;
        return Err(failure);
    }
    // Gives slow nodes time to receive the requests. A hung node does not delay the caller.
    settle(&locks).await;
    Ok(Code::Success)
}

/// Hands owner and fence to the caller. This is the only place that prints an owner.
fn hand_over(
    lock: &Detached,
    file: Option<OwnerFile<'_>>,
    args: &AcquireArgs,
    ttl: Duration,
    output: &Printer,
) -> Result<(), ExitError> {
    let is_printed = file.is_none();
    if let Some(file) = file {
        file.write(lock)?;
    }
    let text = if output.is_json {
        let mut result = json!({
            "resource": args.resource,
            "fence": lock.fence,
            "mode": if lock.is_shared { SHARED } else { EXCLUSIVE },
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
        // Also for an exclusive lock: the variables of an earlier lock may be in the environment.
        let mode = if lock.is_shared { SHARED } else { EXCLUSIVE };
        format!("{owner}REDLOCK_FENCE={}\nREDLOCK_TTL_MS={}\nREDLOCK_MODE={mode}", lock.fence, millis(ttl))
    };
    output.deliver(&text)
}
