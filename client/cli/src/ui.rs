//! `redlock ui`: serves a page for the browser that shows nodes, locks, contention and findings, live.

use crate::args::{CommonArgs, UiArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use crate::web::live::LiveState;
use crate::web::{self, Site};

pub(crate) async fn main(common: &CommonArgs, args: &UiArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let site = Site::with_page(locks.clone(), LiveState::new(locks, config, args.limit), args.hosts.clone());
    web::serve(args.listen, "/", site, output).await
}
