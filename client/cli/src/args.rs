//! The options and subcommands of the command line.

use crate::{duration, exit};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Distributed locks with fences on a majority of independent Redis or Valkey nodes.
///
/// The nodes come from --nodes, else from REDLOCK_NODES, else from the settings file: the file that --config or
/// REDLOCK_CONFIG names, else ./redlock.toml, else redlock/redlock.toml in $XDG_CONFIG_HOME or ~/.config.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, after_help = exit::HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

impl Cli {
    /// Parses the words of the command line, the program's name first.
    ///
    /// With `--`, all names before it are resources of `run`. Without it, `run` and `elect` take one name, and the
    /// command follows, as for flock.
    pub(crate) fn read(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        if !words.iter().any(|word| word == "--") {
            let follows =
                |command: clap::Arg| command.last(false).trailing_var_arg(true).allow_hyphen_values(true);
            command = command.mut_subcommand("run", |run| {
                run.mut_arg("resources", |names| names.action(ArgAction::Set).num_args(1))
                    .mut_arg("command", follows)
            });
            command = command.mut_subcommand("elect", |elect| elect.mut_arg("command", follows));
        }
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// The options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Nodes and settings")]
pub(crate) struct CommonArgs {
    /// The URLs of the nodes, separated by commas; the option may be repeated.
    ///
    /// Other users can see a password in this option in the list of processes. Put it into REDLOCK_NODES, into the
    /// settings file, or outside the URL: --password-file, REDLOCK_PASSWORD.
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',')]
    #[arg(env = "REDLOCK_NODES", hide_env_values = true)]
    pub(crate) nodes: Vec<String>,
    /// The settings file.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The prefix of every key on the nodes.
    #[arg(long, global = true, value_name = "TEXT", env = "REDLOCK_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// How long to wait for a node's answer [default: 250ms].
    #[arg(long, global = true, value_name = "TIME", env = "REDLOCK_NODE_TIMEOUT", value_parser = duration::parse)]
    pub(crate) node_timeout: Option<Duration>,
    /// How long to wait for a connection to a node [default: 1s].
    #[arg(long, global = true, value_name = "TIME", env = "REDLOCK_CONNECT_TIMEOUT", value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<Duration>,
    /// The user for nodes whose URL has no login. The password comes from --password-file, REDLOCK_PASSWORD or the
    /// settings file.
    #[arg(long, global = true, value_name = "NAME", env = "REDLOCK_USERNAME")]
    pub(crate) username: Option<String>,
    /// A file with the password for nodes whose URL has no login.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The certificate authority of rediss:// nodes, a PEM file.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The client certificate for rediss:// nodes, a PEM file. Needs --tls-key.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the client certificate, a PEM file. Needs --tls-cert.
    #[arg(long, global = true, value_name = "FILE", env = "REDLOCK_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Print results and errors as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Not at all.
    Never,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    Run(RunArgs),
    Elect(ElectArgs),
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Inspect(InspectArgs),
    Ls(LsArgs),
    Break(BreakArgs),
    Status(StatusArgs),
    Exporter(ExporterArgs),
    Ui(UiArgs),
    Top(TopArgs),
    Bench(BenchArgs),
    /// Finds problems in the setup.
    ///
    /// Asks the nodes and their servers, changes nothing, and prints the severity, the reason and the remedy of each
    /// finding. Exits with 117 if there are errors, and with 116 if there are only warnings.
    #[command(after_help = exit::HELP)]
    Doctor,
    Admit(AdmitArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Subcommand {
    /// The resource that the command is about; all of them for a command with several.
    pub(crate) fn resource(&self) -> Option<String> {
        match self {
            Self::Run(args) => Some(args.resources.join(", ")),
            Self::Elect(args) => Some(args.name.clone()),
            Self::Acquire(AcquireArgs { resource, .. })
            | Self::Extend(ExtendArgs { resource, .. })
            | Self::Release(ReleaseArgs { resource, .. })
            | Self::Inspect(InspectArgs { resource })
            | Self::Break(BreakArgs { resource, .. }) => Some(resource.clone()),
            _ => None,
        }
    }
}

/// An address to listen on: `host:port`, or `:port` for all IPv4 addresses of this machine.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = || {
        format!(
            "{text:?} is not an address to listen on: use HOST:PORT such as 127.0.0.1:9464 or [::1]:9464, or :9464 for \
             all IPv4 addresses of this machine"
        )
    };
    match text.strip_prefix(':') {
        Some(port) => Ok((Ipv4Addr::UNSPECIFIED, port.parse().map_err(|_| wrong())?).into()),
        None => text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(wrong),
    }
}

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Not at all: one attempt.
    Not,
    For(Duration),
    Forever,
}

fn wait(text: &str) -> Result<WaitLimit, String> {
    match text {
        "forever" => Ok(WaitLimit::Forever),
        text => {
            match duration::parse(text).map_err(|error| format!("{error}; 0 for one attempt; or forever"))? {
                Duration::ZERO => Ok(WaitLimit::Not),
                wait => Ok(WaitLimit::For(wait)),
            }
        }
    }
}

/// The two forms of `run`.
const RUN_USAGE: &str = "redlock run [OPTIONS] <RESOURCE> <COMMAND>...
       redlock run [OPTIONS] <RESOURCE>... -- <COMMAND>...";

/// Runs a command while holding a lock.
///
/// Extends the lock while the command runs, and releases it when the command ends. With several resources, it locks all
/// of them or none; write -- before the command then, and before a command that contains --. The command gets
/// REDLOCK_RESOURCE, REDLOCK_FENCE and REDLOCK_TTL_MS in its environment, and no password of the nodes. If the lock is
/// lost, all processes of the command's process group get SIGTERM and then SIGKILL, early enough to end before another
/// client can hold the lock. Signals reach the command, and its exit status becomes the exit code.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP, override_usage = RUN_USAGE)]
pub(crate) struct RunArgs {
    /// How long the lock stays held if this machine crashes [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for a lock that another client holds: 0 for one attempt, a duration, or forever.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0")]
    pub(crate) wait: WaitLimit,
    /// The time from SIGTERM to SIGKILL when the lock is lost, at most half of --ttl [default: 5s, or a quarter of
    /// --ttl if that is less].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// A note that inspect, ls, top and the page of ui show with the lock [default: the host and the process id].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Share the lock with other clients that ask for it with --shared; a client without --shared waits for all of them.
    /// For one resource.
    #[arg(long)]
    pub(crate) shared: bool,
    /// The exit code if another client holds the lock, instead of 111.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// The names of the resources to lock, all or none.
    #[arg(required = true, value_name = "RESOURCE")]
    pub(crate) resources: Vec<String>,
    /// The command and its arguments, run without a shell.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Runs a command while this candidate leads, and again after a lost term.
///
/// Waits until the candidate is elected, and runs the command. Extends the lease of the leader while the command runs,
/// and resigns when the command ends: its exit status becomes the exit code. If the term is lost, all processes of the
/// command's process group get SIGTERM and then SIGKILL, early enough to end before another candidate can lead; then
/// the candidate waits for its next term. The command gets REDLOCK_RESOURCE, REDLOCK_TERM, REDLOCK_FENCE (the same
/// number) and REDLOCK_TTL_MS in its environment, and no password of the nodes. `redlock inspect NAME` shows who leads.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ElectArgs {
    /// How long no other candidate can lead if the leader's machine crashes [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// The time from SIGTERM to SIGKILL when the term is lost, at most half of --ttl [default: 5s, or a quarter of
    /// --ttl if that is less].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// The name of this candidate, which inspect, ls, top and the page of ui show [default: the host and the process id].
    #[arg(long, value_name = "TEXT")]
    pub(crate) candidate: Option<String>,
    /// The name of the election.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The command and its arguments, run without a shell.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Acquires a lock and leaves it held, for a script to extend and release.
///
/// Prints REDLOCK_OWNER, REDLOCK_FENCE, REDLOCK_TTL_MS and REDLOCK_MODE as shell variables. After
/// `lock=$(redlock acquire job)`, `eval "$lock"` and `export REDLOCK_OWNER REDLOCK_FENCE REDLOCK_MODE`, extend and
/// release read them from the environment.
/// The owner is a secret: a client that knows it can extend and release the lock.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct AcquireArgs {
    /// How long the lock stays held unless it is extended [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for a lock that another client holds: 0 for one attempt, a duration, or forever.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0")]
    pub(crate) wait: WaitLimit,
    /// A note that inspect, ls, top and the page of ui show with the lock [default: the host and the process id].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Share the lock with other clients that ask for it with --shared.
    #[arg(long)]
    pub(crate) shared: bool,
    /// Write owner and fence to this new file, that only you can read, and do not print the owner. The file must not
    /// exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_file: Option<PathBuf>,
    /// The name of the resource to lock.
    pub(crate) resource: String,
}

/// The holder of the lock: owner and fence, as `acquire` printed them.
#[derive(Debug, Args)]
pub(crate) struct HolderArgs {
    /// The owner that acquire printed. Other users can see this option in the list of processes: prefer --owner-file or
    /// REDLOCK_OWNER.
    // Without `env`: clap treats a variable as an option, and would report a conflict with --owner-file.
    #[arg(long, value_name = "OWNER", conflicts_with = "owner_file")]
    pub(crate) owner: Option<String>,
    /// The file that acquire wrote. It overrides REDLOCK_OWNER and REDLOCK_FENCE. A release removes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_file: Option<PathBuf>,
    /// The fence that acquire printed.
    #[arg(long, value_name = "NUMBER", env = "REDLOCK_FENCE")]
    pub(crate) fence: Option<u64>,
}

/// Extends a lock that acquire left held.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    pub(crate) holder: HolderArgs,
    /// The lock was acquired with --shared. Not needed with the file that acquire wrote, or with REDLOCK_MODE=shared.
    #[arg(long)]
    pub(crate) shared: bool,
    /// How long the lock stays held from now on [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// The name of the locked resource.
    pub(crate) resource: String,
}

/// Releases a lock that acquire left held.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) holder: HolderArgs,
    /// The name of the locked resource.
    pub(crate) resource: String,
}

/// Shows which client holds a lock.
///
/// Exits with 0 if a majority of the nodes holds the lock, with 1 if it is free on a majority, and with 113 if neither
/// is certain. A plain key, which a client has set with SET NX PX, counts as held; to see it, a user needs +type and
/// +pttl.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct InspectArgs {
    /// The name of the resource.
    pub(crate) resource: String,
}

/// Lists the held locks.
///
/// For each lock: the fence, how many nodes hold it, the time left, the age, the number of waiters, and the label. A
/// client holds a lock that a majority of the nodes holds with one fence, or that a majority holds shared, with any
/// fences. A user needs +scan, +redlock.inspect, +redlock.node and +info. Does not list keys that a client has locked
/// with SET NX PX: use inspect. Exits with 113 if fewer than a majority of the nodes show their locks.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct LsArgs {
    /// List only resources that match, such as 'orders:*': * is any text, ? any character, [ab] one of these.
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// The largest number of locks to list.
    #[arg(long, value_name = "NUMBER", default_value = "10000")]
    pub(crate) limit: usize,
}

/// Breaks a lock whose holder does not release it.
///
/// Shows which client holds the lock and asks for confirmation. Then every node frees the lock, if it still has the
/// fence that was shown, and passes it to the first waiter. The holder does not stop: it finds out at its next
/// extension, or when its time runs out, and may write until then. Only a storage that compares fences rejects these
/// writes.
///
/// Exits with 1 if the lock is free, with 110 if it is a plain key or the answer is not yes, and with 113 if a majority
/// of the nodes may still hold it. A user needs +redlock.inspect and +redlock.break, and +type and +pttl to see plain
/// keys.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct BreakArgs {
    /// The name of the resource.
    pub(crate) resource: String,
    /// Do not ask for confirmation. Required without a terminal and with --json.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Shows the state of the nodes.
///
/// Exits with 0 if a majority of the nodes can grant a lock, with 114 if only quarantine prevents that, and with 113
/// otherwise.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct StatusArgs {
    /// Print the state in the text format of Prometheus.
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

/// Serves the metrics of the nodes to Prometheus over HTTP.
///
/// Asks the nodes at every request for /metrics.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ExporterArgs {
    /// The address to listen on: HOST:PORT, or :PORT for all IPv4 addresses of this machine. Every client
    /// that reaches it can read the metrics.
    #[arg(long, value_name = "ADDRESS", value_parser = listen, default_value = "127.0.0.1:9464")]
    pub(crate) listen: SocketAddr,
}

/// Serves a page for the browser: nodes, held locks, contention and findings, live.
///
/// The page is read only, and loads nothing from other servers. Serves /metrics too.
///
/// A user needs the permissions of top and doctor.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct UiArgs {
    /// The address to listen on: HOST:PORT, or :PORT for all IPv4 addresses of this machine. Every client
    /// that reaches it can read the names and labels of the locks.
    #[arg(long, value_name = "ADDRESS", value_parser = listen, default_value = "127.0.0.1:9465")]
    pub(crate) listen: SocketAddr,
    /// A host name that the URL of the page may have, beside localhost and IP addresses. Repeat it for several names.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// The largest number of locks to ask each node about.
    #[arg(long, value_name = "NUMBER", default_value = "500")]
    pub(crate) limit: usize,
}

/// Shows the held locks, live.
///
/// Keys: n, l, a, w and h sort by name, time left, age, waiters and holders; r reverses the order; / filters;
/// arrows, Page keys and Home move; p pauses; q quits.
///
/// A user needs +scan, +redlock.inspect, +redlock.node and +info. Does not show keys that a client has locked with
/// SET NX PX: nothing distinguishes them from other strings. Use inspect with the name of the lock. With --once it
/// exits with 113 if fewer than a majority of the nodes answer.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct TopArgs {
    /// How often to refresh, at least 100ms.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    pub(crate) interval: Duration,
    /// The largest number of locks to ask each node about.
    #[arg(long, value_name = "NUMBER", default_value = "500")]
    pub(crate) limit: usize,
    /// Print one snapshot and exit; needs no terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Show only locks whose key or label contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// The column to sort by.
    #[arg(long, value_name = "COLUMN", default_value = "left")]
    pub(crate) sort: Sort,
}

/// The column by which top sorts the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The key.
    Name,
    /// The time left, the shortest first.
    Left,
    /// The time held, the longest first.
    Age,
    /// The number of waiters, the most first.
    Waiters,
    /// The number of nodes that hold the lock, the fewest first.
    Holders,
}

/// Measures how fast locks are on these nodes.
///
/// Acquires and releases locks on keys of its own: your prefix, redlock:bench: and a random part. Leaves none behind.
/// Exits with 113 or 114 if no majority can grant a lock, and with the code of the last failure if it acquired no lock
/// at all.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct BenchArgs {
    /// How long to measure.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    pub(crate) duration: Duration,
    /// How many concurrent callers, from 1 to 1024.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) tasks: u16,
    /// Let all callers acquire the same lock, instead of one lock each.
    #[arg(long)]
    pub(crate) contended: bool,
}

/// Lets a node vote although it cannot prove which node it is: a replacement, a promoted replica, a restored backup.
///
/// Of the other configured nodes, a majority of the whole group must vote and answer. redlock waits for the longest
/// lease that the group grants or may still hold, asks these nodes again, and admits the node with fences above their
/// largest high-water mark. Run it only when the server that the node replaces is stopped for good: no program can
/// check that.
///
/// Exits with 110 if the state of the node or the options do not allow it, and with 113 if the node refuses, or if the
/// node or too many of the others do not answer. A user needs +redlock.node, +info and +redlock.admit.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct AdmitArgs {
    /// The node: its address as status shows it, its URL, or the first 8 or more digits of its node id.
    pub(crate) node: String,
    /// Do not ask for confirmation. Required without a terminal and with --json.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Admit a node that already votes, such as a node that has started on a wiped disk.
    #[arg(long)]
    pub(crate) force: bool,
    /// Take floor and wait from --floor and --wait, for groups in which too few other nodes vote and answer.
    #[arg(long, requires = "floor", requires = "wait")]
    pub(crate) alone: bool,
    /// With --alone: a number at least as large as every fence that the group has granted.
    #[arg(long, value_name = "NUMBER", requires = "alone")]
    pub(crate) floor: Option<u64>,
    /// With --alone: a time at least as long as the longest lease that may still run.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "alone")]
    pub(crate) wait: Option<Duration>,
}

/// Prints completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the manual page, or writes a page for each command to a folder.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_does_not_show_secrets_from_the_environment() {
        let command = Cli::command();
        let parts = command.get_subcommands().chain([&command]);
        let secret = |arg: &&clap::Arg| matches!(arg.get_id().as_str(), "nodes" | "owner");
        let secrets: Vec<&clap::Arg> = parts.flat_map(clap::Command::get_arguments).filter(secret).collect();
        assert_eq!(secrets.len(), 3, "the nodes, and the owners of extend and release");
        assert!(secrets.iter().all(|arg| arg.get_env().is_none() || arg.is_hide_env_values_set()));
    }

    fn run(line: &str) -> Result<RunArgs, clap::Error> {
        match Cli::read(line.split(' ').map(OsString::from).collect())?.command {
            Subcommand::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_follows_one_resource_or_the_dashes() {
        for (line, resources, command) in [
            ("redlock run job make -j4 --json", "job", "make -j4 --json"),
            ("redlock run --ttl 5s job make", "job", "make"),
            ("redlock run job --ttl 5s make --ttl", "job", "make --ttl"),
            ("redlock run job -- make -j4", "job", "make -j4"),
            ("redlock run a b --ttl 5s c -- make -- x", "a b c", "make -- x"),
        ] {
            let run = run(line).unwrap();
            let words: Vec<_> = run.command.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(
                (run.resources.join(" "), words.join(" ")),
                (resources.into(), command.into()),
                "{line}"
            );
        }
        for line in ["redlock run", "redlock run job", "redlock run job --", "redlock run -- make"] {
            assert!(run(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_port_alone_means_all_addresses() {
        for (text, address) in
            [(":9464", "0.0.0.0:9464"), ("127.0.0.1:9464", "127.0.0.1:9464"), ("[::1]:80", "[::1]:80")]
        {
            assert_eq!(listen(text).map(|address| address.to_string()).as_deref(), Ok(address));
        }
        for text in ["", ":", "9464", ":port", "127.0.0.1", ":70000"] {
            let error = listen(text).unwrap_err();
            assert!(error.contains("127.0.0.1:9464") && error.contains(":9464 for all"), "{error}");
        }
    }

    #[test]
    fn without_an_address_only_this_machine_can_connect() {
        let read = |line: &str| Cli::read(line.split(' ').map(OsString::from).collect()).unwrap().command;
        let Subcommand::Exporter(exporter) = read("redlock exporter") else { panic!("another command") };
        let Subcommand::Ui(ui) = read("redlock ui") else { panic!("another command") };
        assert!(exporter.listen.ip().is_loopback() && ui.listen.ip().is_loopback());
    }

    #[test]
    fn a_wait_is_zero_a_duration_or_forever() {
        assert_eq!(wait("0"), Ok(WaitLimit::Not));
        assert_eq!(wait("0s"), Ok(WaitLimit::Not));
        assert_eq!(wait("forever"), Ok(WaitLimit::Forever));
        assert_eq!(wait("10s"), Ok(WaitLimit::For(Duration::from_secs(10))));
        assert!(wait("long").is_err());
    }
}
