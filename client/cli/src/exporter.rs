//! `redlock exporter`: serves the metrics of the nodes to Prometheus.

use crate::args::{CommonArgs, ExporterArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use crate::web::{self, Site};

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ExporterArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let site = Site::metrics(Config::load(common)?.manager()?);
    web::serve(args.listen, "/metrics", site, output).await
}
