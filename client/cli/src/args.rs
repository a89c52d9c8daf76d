//! What can be said on the command line.

use crate::{duration, exit};
use clap::{Args, Parser, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Locks with fences over a majority of independent Redis or Valkey nodes.
///
/// The nodes come from --nodes, from REDLOCK_NODES, or from a file of settings: the one that --config or
/// REDLOCK_CONFIG names, ./redlock.toml, or redlock/redlock.toml in the user's folder of settings.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, after_help = exit::HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

/// What every command understands.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Nodes and settings")]
pub(crate) struct CommonArgs {
    /// The nodes, separated by commas; may be given again.
    ///
    /// A password in a URL can be read in the list of processes: better in REDLOCK_NODES, in the file of settings,
    /// or beside the URL with --password-file or REDLOCK_PASSWORD.
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',')]
    #[arg(env = "REDLOCK_NODES", hide_env_values = true)]
    pub(crate) nodes: Vec<String>,
    /// The file of settings.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// What every resource's key starts with on the nodes.
    #[arg(long, global = true, value_name = "TEXT", env = "REDLOCK_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// How long a node may take to answer [default: 250ms].
    #[arg(long, global = true, value_name = "TIME", env = "REDLOCK_NODE_TIMEOUT", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<Duration>,
    /// How long connecting to a node may take [default: 1s].
    #[arg(long, global = true, value_name = "TIME", env = "REDLOCK_CONNECT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<Duration>,
    /// The user at nodes whose URL names none. The password comes from REDLOCK_PASSWORD, from --password-file or
    /// from the file of settings.
    #[arg(long, global = true, value_name = "NAME", env = "REDLOCK_USERNAME")]
    pub(crate) username: Option<String>,
    /// The file with the password for nodes whose URL has none.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The certificate authority of rediss:// nodes, as PEM.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// One's own certificate for rediss:// nodes, as PEM.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of one's own certificate, as PEM.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Results and errors as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Whether to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    Run(RunArgs),
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Inspect(InspectArgs),
    Status(StatusArgs),
    Exporter(ExporterArgs),
    Top(TopArgs),
    Bench(BenchArgs),
    /// Looks for what would hurt.
    ///
    /// Asks the nodes and their servers, changes nothing, and tells for each finding how bad it is, why, and what to
    /// do about it. Exits with 117 if there are errors, and with 116 if there are warnings.
    #[command(after_help = exit::HELP)]
    Doctor,
    Admit(AdmitArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// One try.
    Not,
    For(Duration),
    Forever,
}

fn wait(text: &str) -> Result<WaitLimit, String> {
    match text {
        "forever" => Ok(WaitLimit::Forever),
        text => match duration::parse(text)? {
            Duration::ZERO => Ok(WaitLimit::Not),
            wait => Ok(WaitLimit::For(wait)),
        },
    }
}

/// Runs a command while holding a lock.
///
/// The lock is extended while the command runs, and released when it ends. The command finds REDLOCK_RESOURCE,
/// REDLOCK_FENCE and REDLOCK_TTL_MS in its environment. If the lock is lost, the command and all processes of its
/// group get SIGTERM and then SIGKILL, early enough to be gone before anybody else can have the lock. Signals and
/// the exit status are passed on.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct RunArgs {
    /// How long the lock outlives a crash of this machine [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock: 0, a time, or forever.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0")]
    pub(crate) wait: WaitLimit,
    /// The time between SIGTERM and SIGKILL when the lock is lost [default: 5s, at most a quarter of the ttl].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// What those see who inspect the lock [default: the host and the process].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The exit code if somebody else holds the lock, in place of 111.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// What to lock.
    pub(crate) resource: String,
    /// The command and its arguments. No shell is involved.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Takes a lock and leaves it held, for a script to extend and release.
///
/// Prints REDLOCK_OWNER, REDLOCK_FENCE and REDLOCK_TTL_MS as a shell reads them. After `lock=$(redlock acquire job)`,
/// `eval "$lock"` and `export REDLOCK_OWNER REDLOCK_FENCE` they are known to extend and release.
/// The owner is a secret: whoever knows it can extend and release the lock.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct AcquireArgs {
    /// How long the lock is held unless it is extended [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock: 0, a time, or forever.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0")]
    pub(crate) wait: WaitLimit,
    /// What those see who inspect the lock [default: the host and the process].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Keeps owner and fence in this new file, readable by its owner alone, and prints no owner.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_file: Option<PathBuf>,
    /// What to lock.
    pub(crate) resource: String,
}

/// Who holds the lock, as `acquire` told it.
#[derive(Debug, Args)]
pub(crate) struct HolderArgs {
    /// The owner that acquire gave out. Better in REDLOCK_OWNER or in a file: options can be read in the list of
    /// processes.
    // Not with `env`: clap takes a variable for an option, and would find it in conflict with --owner-file.
    #[arg(long, value_name = "OWNER", conflicts_with = "owner_file")]
    pub(crate) owner: Option<String>,
    /// The file that acquire wrote. It goes before REDLOCK_OWNER and REDLOCK_FENCE.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_file: Option<PathBuf>,
    /// The fence that acquire gave out.
    #[arg(long, value_name = "NUMBER", env = "REDLOCK_FENCE")]
    pub(crate) fence: Option<u64>,
}

/// Holds a lock that was acquired for longer.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    pub(crate) holder: HolderArgs,
    /// For how long, from now on [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// What was locked.
    pub(crate) resource: String,
}

/// Frees a lock that was acquired.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) holder: HolderArgs,
    /// What was locked.
    pub(crate) resource: String,
}

/// Tells who holds a lock.
///
/// Exits with 0 if somebody does, with 1 if it is free, with 113 if that is not clear. A key that somebody has set with
/// SET NX PX counts as held; to see it, a user needs +type and +pttl.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct InspectArgs {
    /// What may be locked.
    pub(crate) resource: String,
}

/// Tells how the nodes are.
///
/// Exits with 113 or 114 if no majority can grant a lock.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct StatusArgs {
    /// In the text format of Prometheus.
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

/// Serves the numbers of the nodes to Prometheus, over HTTP.
///
/// The nodes are asked at every request for /metrics.
#[derive(Debug, Args)]
pub(crate) struct ExporterArgs {
    /// Where to listen. Whoever reaches this address can read the numbers.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub(crate) listen: SocketAddr,
}

/// Shows the locks that are held, live.
///
/// Keys: n, l, a, w and h sort by name, time left, age, waiters and holders; r turns the order round; / filters;
/// arrows and Page keys move; p pauses; q quits.
///
/// A user needs +scan, +redlock.inspect, +redlock.node and +info. Keys that were locked with SET NX PX are not shown, as
/// nothing tells them from other strings; inspect knows them by their name. With --once it exits with 113 if
/// fewer than a majority of the nodes answer.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct TopArgs {
    /// How often to look.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    pub(crate) interval: Duration,
    /// At most so many locks are asked about at each node.
    #[arg(long, value_name = "NUMBER", default_value = "500")]
    pub(crate) limit: usize,
    /// One look, as text or JSON; needs no terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Only locks whose key or label contains this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// What to sort by.
    #[arg(long, value_name = "COLUMN", default_value = "left")]
    pub(crate) sort: Sort,
}

/// What to sort locks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The key.
    Name,
    /// The time left, the shortest first.
    Left,
    /// The time held, the longest first.
    Age,
    /// How many wait, the most first.
    Waiters,
    /// How many nodes hold it, the fewest first.
    Holders,
}

/// Measures how fast locks are on these nodes.
///
/// Takes and frees locks of its own, whose keys begin with redlock:bench: and are new each time. Exits with 113 or 114
/// if no majority can grant a lock, and with the code of the last failure if not a single lock was had.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct BenchArgs {
    /// For how long.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    pub(crate) duration: Duration,
    /// How many callers at a time, up to 1024.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) tasks: u16,
    /// All callers want the same lock, in place of one each.
    #[arg(long)]
    pub(crate) contended: bool,
}

/// Lets a node vote that cannot prove who it is: a replacement, a promoted replica, a restored backup.
///
/// Asks the other configured nodes, of which a majority of the whole group must vote and answer. The node's fences
/// stay above the largest high-water mark among them, and it grants nothing for the longest lease that the group
/// grants. Run it only when the server that the node replaces is stopped for good: no program can check that.
///
/// Exits with 110 if the node or the options do not allow it, and with 113 if the node or too many of the others do
/// not answer or refuse. A user needs +redlock.node, +info and +redlock.admit.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct AdmitArgs {
    /// The node: its address as status shows it, or the first 8 or more digits of its node id.
    pub(crate) node: String,
    /// Does not ask for confirmation. Needed without a terminal and with --json.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Admits a node that votes already, such as one that has started anew on a wiped disk.
    #[arg(long)]
    pub(crate) force: bool,
    /// Takes floor and wait from the options, for groups whose other nodes cannot be asked.
    #[arg(long, requires = "floor", requires = "wait")]
    pub(crate) alone: bool,
    /// With --alone: no fence above this one was given out.
    #[arg(long, value_name = "NUMBER", requires = "alone")]
    pub(crate) floor: Option<u64>,
    /// With --alone: no lease lasts longer than this from now.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "alone")]
    pub(crate) wait: Option<Duration>,
}

/// Prints completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the manual page, or writes all of them to a folder.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Writes a page for each command to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_help_shows_what_is_in_the_environment() {
        let command = Cli::command();
        let parts = command.get_subcommands().chain([&command]);
        let secret = |arg: &&clap::Arg| matches!(arg.get_id().as_str(), "nodes" | "owner");
        let secrets: Vec<&clap::Arg> = parts.flat_map(clap::Command::get_arguments).filter(secret).collect();
        assert_eq!(secrets.len(), 3, "nodes, and the owners of extend and release");
        assert!(secrets.iter().all(|arg| arg.get_env().is_none() || arg.is_hide_env_values_set()));
    }

    #[test]
    fn how_long_to_wait() {
        assert_eq!(wait("0"), Ok(WaitLimit::Not));
        assert_eq!(wait("0s"), Ok(WaitLimit::Not));
        assert_eq!(wait("forever"), Ok(WaitLimit::Forever));
        assert_eq!(wait("10s"), Ok(WaitLimit::For(Duration::from_secs(10))));
        assert!(wait("long").is_err());
    }
}
