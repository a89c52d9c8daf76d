//! How a command runs: arguments to request, request to decision, decision to answer.

use redlock_contract::Role;
use redlock_contract::commands::Verb;
use redlock_core::durable::Dataset;
use redlock_core::fence::Stripe;
use redlock_core::grammar::{self, Acquire, Release};
use redlock_core::{Fault, Keyspace, Reply};

use crate::ffi::args::Args;
use crate::ffi::cache::fetch_soon;
use crate::ffi::command_keys::{KeyContext, ManyKeys, OneKey};
use crate::ffi::context::Ctx;
use crate::ffi::keys::Intent;
use crate::reclaim::{self, RECLAIMED_PER_COMMAND};
use crate::state::{self, State};
use crate::{handoff, restart, state_file, sweep};

/// The argument that is the key of a command that has one.
const KEY: usize = 1;

/// What a command answers.
pub(crate) enum Answer {
    /// A reply of the contract.
    Reply(Reply),
    /// An effect was applied; nobody reads the answer.
    Done,
}

/// What a command comes to.
pub(crate) type Outcome = Result<Answer, Fault>;

/// What runs a command: one of the functions below.
pub(crate) trait Command: FnOnce(&mut State, Ctx<'_>, &Args<'_>) -> Outcome {}
impl<F: FnOnce(&mut State, Ctx<'_>, &Args<'_>) -> Outcome> Command for F {}

/// Runs a command. The arguments are the server's, the answer goes back to it.
#[inline]
pub(crate) fn run(ctx: Ctx<'_>, args: &Args<'_>, command: impl Command) -> Outcome {
    state::during(ctx, |state| {
        let answer = command(state, ctx, args);
        state.reclaim(RECLAIMED_PER_COMMAND);
        handoff::serve(state, ctx);
        answer
    })
    .unwrap_or(Err(Fault::Arg("a command cannot run inside another one of this module")))
}

impl State {
    #[inline]
    pub(crate) fn acquire(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        // Stripes are many and far away; fetched now, the key's is here when its number is asked for.
        let stripe = Stripe::of(args.arg(KEY));
        fetch_soon(self.node.stripes().near(stripe));
        let request = grammar::acquire(Verb::Acquire, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let context = self.key_context(ctx)?;
        let mut key = OneKey::open(context, args, KEY, Some(stripe), Intent::Change);
        self.acquire_of(ctx, &mut key, &request)
    }

    pub(crate) fn macquire(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::acquire(Verb::Macquire, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = ManyKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.acquire_of(ctx, &mut keys, &request)
    }

    #[inline(always)]
    fn acquire_of(&mut self, ctx: Ctx<'_>, keys: &mut impl Keyspace, request: &Acquire<'_>) -> Outcome {
        let reply = self.node.acquire(keys, request, &mut self.clock)?;
        match (&reply, &request.wait) {
            (Reply::Integer(_), _) => sweep::wake_by(self, ctx, request.ttl.ms()),
            (Reply::Queued { .. }, Some(wait)) => {
                handoff::watch(self, ctx);
                sweep::wake_by(self, ctx, wait.wait_ms);
            }
            _ => {}
        }
        Ok(Answer::Reply(reply))
    }

    #[inline]
    pub(crate) fn release(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::release(Verb::Release, args.all())?;
        let mut key = OneKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.release_of(ctx, &mut key, &request)
    }

    pub(crate) fn mrelease(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::release(Verb::Mrelease, args.all())?;
        let mut keys = ManyKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.release_of(ctx, &mut keys, &request)
    }

    #[inline(always)]
    fn release_of(&mut self, ctx: Ctx<'_>, keys: &mut impl Keyspace, request: &Release<'_>) -> Outcome {
        if (self.is_replica || self.is_loading) && ctx.flags().is_replay() {
            return Ok(Answer::Reply(self.node.replay_release(keys, request)));
        }
        self.refuse_on_a_replica()?;
        self.node.release(keys, request, &mut self.clock).map(Answer::Reply)
    }

    #[inline]
    pub(crate) fn extend(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::extend(Verb::Extend, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut key = OneKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.node.extend(&mut key, &request, &mut self.clock).map(Answer::Reply)
    }

    pub(crate) fn mextend(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::extend(Verb::Mextend, args.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = ManyKeys::open(self.key_context(ctx)?, args, &request.keys, Intent::Change);
        self.node.extend(&mut keys, &request, &mut self.clock).map(Answer::Reply)
    }

    pub(crate) fn inspect(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        grammar::exactly(Verb::Inspect, args.all())?;
        let key = OneKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Look);
        self.node.inspect(&key, &mut self.clock).map(Answer::Reply)
    }

    pub(crate) fn node(&mut self, _: Ctx<'_>, args: &Args<'_>) -> Outcome {
        grammar::exactly(Verb::Node, args.all())?;
        let role = if self.is_replica { Role::Replica } else { Role::Master };
        Ok(Answer::Reply(self.node.describe(reclaim::unreclaimed(), role, &mut self.clock)))
    }

    pub(crate) fn apply(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        if !ctx.flags().is_replay() {
            return Err(Fault::Internal);
        }
        let request = grammar::apply(args.all())?;
        let mut key = OneKey::open(self.key_context(ctx)?, args, KEY, None, Intent::Change);
        self.dataset.highest_fence = self.dataset.highest_fence.max(request.fence);
        self.node.apply(&mut key, &request, &mut self.clock)?;
        // A replica of this replica gets the same arguments.
        ctx.replicate_verbatim();
        Ok(Answer::Done)
    }

    pub(crate) fn dataset(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        if !ctx.flags().is_replay() {
            return Err(Fault::Internal);
        }
        let (id, highest_fence) = grammar::dataset(args.all())?;
        restart::learn(self, Dataset { id: Some(id), has_locks: false, highest_fence });
        ctx.replicate_verbatim();
        Ok(Answer::Done)
    }

    /// What it says is in the state file.
    pub(crate) fn mark(&mut self, ctx: Ctx<'_>, args: &Args<'_>) -> Outcome {
        if !ctx.flags().is_replay() {
            return Err(Fault::Internal);
        }
        grammar::exactly(Verb::Mark, args.all())?;
        Ok(Answer::Done)
    }

    pub(crate) fn admit(&mut self, _: Ctx<'_>, args: &Args<'_>) -> Outcome {
        let request = grammar::admit(args.all())?;
        self.refuse_on_a_replica()?;
        self.node.admit(&request, state_file::store, &mut self.clock).map(Answer::Reply)
    }

    fn key_context<'a>(&self, ctx: Ctx<'a>) -> Result<KeyContext<'a>, Fault> {
        let database = u16::try_from(ctx.database())
            .map_err(|_| Fault::Arg("locks can be held in databases 0 to 65535"))?;
        Ok(KeyContext { ctx, database, replication_target: self.replication_target })
    }

    /// Requests are never replicated, so on a replica they come from clients that took it for a
    /// master; the server itself turns them away unless `replica-read-only` is off.
    fn refuse_on_a_replica(&self) -> Result<(), Fault> {
        if self.is_replica { Err(Fault::Replica) } else { Ok(()) }
    }
}
