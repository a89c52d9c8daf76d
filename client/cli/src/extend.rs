//! `redlock extend`: holds a lock that was acquired for longer.

use crate::args::{CommonArgs, ExtendArgs};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use crate::ticket::Ticket;
use serde_json::json;

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ExtendArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ticket = Ticket::find(&args.holder)?;
    let fence = ticket.fence.ok_or_else(|| {
        ExitError::usage("no fence: use --fence, REDLOCK_FENCE or the file that acquire wrote")
    })?;
    let ttl = config.ttl(args.ttl);
    let locks = config.manager()?;
    let lock = locks.detached(&args.resource, ticket.owner, fence)?;
    let valid = locks.extend_detached(&lock, ttl).await?;
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
