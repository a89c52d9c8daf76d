//! The commands: arguments to request, request to decision, decision to reply.

use redlock_contract::Role;
use redlock_contract::commands::Verb;
use redlock_core::durable::Dataset;
use redlock_core::fence::Stripe;
use redlock_core::grammar::{self, Acquire, Release};
use redlock_core::{CommandError, Keyspace, Reply};

use crate::ffi::args::CallArgs;
use crate::ffi::cache::fetch_soon;
use crate::ffi::command_keys::{CommandKey, CommandKeys, KeyContext};
use crate::ffi::context::Ctx;
use crate::ffi::keys::Intent;
use crate::ffi::log::Level;
use crate::reclaim::{self, RECLAIMED_PER_COMMAND};
use crate::state::{self, ModuleState};
use crate::{handoff, restart, state_file, sweep};

/// The index of the key in the arguments of a command with one key.
const KEY: usize = 1;

/// The reply of a command.
pub(crate) enum CommandReply {
    /// A reply of the core.
    Reply(Reply),
    /// An effect was applied; the reply is `OK`, and the master or the AOF ignores it.
    Done,
}

/// The result of a command.
pub(crate) type CommandResult = Result<CommandReply, CommandError>;

/// A function that runs a command: one of those below.
pub(crate) trait CommandFn: FnOnce(&mut ModuleState, Ctx<'_>, &CallArgs<'_>) -> CommandResult {}
impl<F: FnOnce(&mut ModuleState, Ctx<'_>, &CallArgs<'_>) -> CommandResult> CommandFn for F {}

/// Runs a command, then removes freed records and hands locks on.
#[inline]
pub(crate) fn run(ctx: Ctx<'_>, args: &CallArgs<'_>, command: impl CommandFn) -> CommandResult {
    state::during(ctx, |state| {
        let answer = command(state, ctx, args);
        state.reclaim(RECLAIMED_PER_COMMAND);
        handoff::serve(state, ctx);
        answer
    })
    .unwrap_or(Err(CommandError::Nested))
}

impl ModuleState {
    #[inline]
    pub(crate) fn acquire(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        // Stripes rarely are in the processor's cache. Prefetched now, the key's stripe is there when the
        // node reads it.
        let stripe = Stripe::of(args.arg(KEY));
        fetch_soon(self.node.stripes().near(stripe));
        let request = grammar::acquire(Verb::Acquire, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let context = self.key_context(ctx)?;
        let mut key = CommandKey::open(context, args, KEY, Some(stripe), Intent::Change);
        self.acquire_of(ctx, &mut key, &request)
    }

    pub(crate) fn macquire(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::acquire(Verb::Macquire, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = CommandKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.acquire_of(ctx, &mut keys, &request)
    }

    #[inline(always)]
    fn acquire_of(&mut self, ctx: Ctx<'_>, keys: &mut impl Keyspace, request: &Acquire<'_>) -> CommandResult {
        let reply = self.node.acquire(keys, request, &mut self.clock)?;
        match (&reply, &request.wait) {
            (Reply::Integer(_), _) => sweep::wake_by(self, ctx, request.ttl.ms()),
            (Reply::Queued { .. }, Some(wait)) => {
                handoff::watch(self, ctx);
                sweep::wake_by(self, ctx, wait.wait_ms);
            }
            _ => {}
        }
        Ok(CommandReply::Reply(reply))
    }

    #[inline]
    pub(crate) fn release(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::release(Verb::Release, args.all())?;
        let mut key = CommandKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.release_of(ctx, &mut key, &request)
    }

    pub(crate) fn mrelease(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::release(Verb::Mrelease, args.all())?;
        let mut keys = CommandKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.release_of(ctx, &mut keys, &request)
    }

    #[inline(always)]
    fn release_of(&mut self, ctx: Ctx<'_>, keys: &mut impl Keyspace, request: &Release<'_>) -> CommandResult {
        if (self.is_replica || self.is_loading) && ctx.flags().is_replay() {
            return Ok(CommandReply::Reply(self.node.replay_release(keys, request)));
        }
        self.refuse_on_a_replica()?;
        self.node.release(keys, request, &mut self.clock).map(CommandReply::Reply)
    }

    #[inline]
    pub(crate) fn extend(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::extend(Verb::Extend, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut key = CommandKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.node.extend(&mut key, &request, &mut self.clock).map(CommandReply::Reply)
    }

    pub(crate) fn mextend(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::extend(Verb::Mextend, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = CommandKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.node.extend(&mut keys, &request, &mut self.clock).map(CommandReply::Reply)
    }

    pub(crate) fn inspect(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        grammar::exactly(Verb::Inspect, args.all())?;
        let key = CommandKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Look);
        self.node.inspect(&key, &mut self.clock).map(CommandReply::Reply)
    }

    pub(crate) fn node(&mut self, _: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        grammar::exactly(Verb::Node, args.all())?;
        let role = if self.is_replica { Role::Replica } else { Role::Master };
        Ok(CommandReply::Reply(self.node.describe(reclaim::unreclaimed(), role, &mut self.clock)))
    }

    pub(crate) fn apply(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        if !ctx.flags().is_replay() {
            return Err(CommandError::Internal);
        }
        let request = match grammar::apply(args.all()) {
            Ok(request) => request,
            // Not an error reply: the server would log it together with the last commands of its master, which contain
            // owners.
            Err(refused) => {
                let line = format!("a lock of the master or the AOF is ignored: REDLOCK.APPLY: {refused}");
                ctx.log(Level::Warning, &line);
                return Ok(CommandReply::Done);
            }
        };
        let mut key = CommandKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.dataset.highest_fence = self.dataset.highest_fence.max(request.fence);
        self.node.apply(&mut key, &request, &mut self.clock)?;
        // A replica of this replica gets the same arguments.
        ctx.replicate_verbatim();
        Ok(CommandReply::Done)
    }

    pub(crate) fn dataset(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        if !ctx.flags().is_replay() {
            return Err(CommandError::Internal);
        }
        let (id, high_water) = grammar::dataset(args.all())?;
        let dataset = Dataset { id: Some(id), has_locks: false, high_water, highest_fence: high_water };
        restart::note_dataset(self, dataset);
        ctx.replicate_verbatim();
        Ok(CommandReply::Done)
    }

    /// Does nothing: `MARK` of AOF format 1 repeats what the state file contains.
    pub(crate) fn mark(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        if !ctx.flags().is_replay() {
            return Err(CommandError::Internal);
        }
        grammar::exactly(Verb::Mark, args.all())?;
        Ok(CommandReply::Done)
    }

    pub(crate) fn admit(&mut self, _: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let request = grammar::admit(args.all())?;
        self.refuse_on_a_replica()?;
        self.node.admit(&request, state_file::store, &mut self.clock).map(CommandReply::Reply)
    }

    pub(crate) fn break_lock(&mut self, ctx: Ctx<'_>, args: &CallArgs<'_>) -> CommandResult {
        let fence = grammar::break_lock(args.all())?;
        let mut key = CommandKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        if (self.is_replica || self.is_loading) && ctx.flags().is_replay() {
            return Ok(CommandReply::Reply(self.node.replay_break(&mut key)));
        }
        self.refuse_on_a_replica()?;
        self.node.break_lock(&mut key, fence, &mut self.clock).map(CommandReply::Reply)
    }

    fn key_context<'a>(&self, ctx: Ctx<'a>) -> Result<KeyContext<'a>, CommandError> {
        let database = u16::try_from(ctx.database()).map_err(|_| CommandError::Database)?;
        Ok(KeyContext { ctx, database, replication_target: self.replication_target })
    }

    /// Refuses requests on a replica. Requests are never replicated, so a client has mistaken the replica for a master.
    /// The server refuses them itself unless `replica-read-only` is off.
    fn refuse_on_a_replica(&self) -> Result<(), CommandError> {
        if self.is_replica { Err(CommandError::Replica) } else { Ok(()) }
    }
}
