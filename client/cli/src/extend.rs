//! `redlock extend`: extends a lock that `redlock acquire` left held.

use crate::args::{CommonArgs, ExtendArgs};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, ExitError};
use crate::holder::HolderSecret;
use crate::output::Printer;
use serde_json::json;

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ExtendArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let secret = HolderSecret::find(&args.holder)?;
    let fence = secret.fence.ok_or_else(|| {
        ExitError::usage("no fence given: use --fence, REDLOCK_FENCE or the --owner-file that acquire wrote")
    })?;
    let ttl = config.ttl(args.ttl);
    let locks = config.manager()?;
    let is_shared = args.shared || secret.is_shared;
    let lock = if is_shared {
        locks.detached_shared(&args.resource, secret.owner, fence)?
    } else {
        locks.detached(&args.resource, secret.owner, fence)?
    };
    let valid = locks.extend_detached(&lock, ttl).await.map_err(ExitError::of_extension)?;
    if output.is_json {
        output.json(&json!({
            "resource": args.resource,
            "fence": fence,
            "ttl_ms": millis(ttl),
            "valid_ms": millis(valid),
        }))?;
    } else {
        output.line(&format!("{} is held for {} more, fence {fence}", args.resource, show(valid)))?;
    }
    Ok(Code::Success)
}
