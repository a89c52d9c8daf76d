//! The keys of one command, and the replication of its effects.

use redis_module::raw;
use redlock_core::durable::DurableState;
use redlock_core::fence::Stripe;
use redlock_core::grammar::KeyArgs;
use redlock_core::table::Database;
use redlock_core::{CommandError, Effect, KeyState, Keyspace, LockEvent, LockId};

use super::api::server;
use super::args::CallArgs;
use super::context::Ctx;
use super::keys::{Intent, OpenKey};
use super::notifications::{EventsOfKeys, KeyEvents};
use super::replication::{ReplicationTarget, replicate_effect};
use crate::state_file;

/// What the keys of a command have in common.
#[derive(Clone, Copy)]
pub(crate) struct KeyContext<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) database: Database,
    pub(crate) replication_target: ReplicationTarget,
}

/// The key of a command that has one key, as most commands do.
pub(crate) struct CommandKey<'a> {
    context: KeyContext<'a>,
    raw_name: *mut raw::RedisModuleString,
    name: &'a [u8],
    /// The stripe of the key, if the caller knows it. To compute it takes time, and most commands do not need it.
    stripe: Option<Stripe>,
    // Closed before the events are sent: fields are dropped in this order.
    open: OpenKey,
    events: KeyEvents<'a>,
}

impl<'a> CommandKey<'a> {
    /// Opens the key that is an argument of the command.
    pub(crate) fn open(
        context: KeyContext<'a>,
        args: &CallArgs<'a>,
        arg: usize,
        stripe: Option<Stripe>,
        intent: Intent,
    ) -> Self {
        let raw_name = args.raw(arg);
        // SAFETY: arguments are valid strings for the length of the call.
        let (open, events) =
            unsafe { (OpenKey::open(context.ctx, raw_name, intent), KeyEvents::of(context.ctx, raw_name)) };
        Self { context, raw_name, name: args.arg(arg), stripe, open, events }
    }

    /// Signals to `WATCH` and to client-side caches that the key has changed. The module does it itself, because a
    /// refused command opens its key for writing and changes nothing.
    fn changed(&self) {
        // SAFETY: the context is alive, the name valid.
        unsafe { server!(RedisModule_SignalModifiedKey)(self.context.ctx.raw, self.raw_name) };
    }
}

impl Keyspace for CommandKey<'_> {
    fn count(&self) -> usize {
        1
    }

    fn database(&self) -> Database {
        self.context.database
    }

    fn connection(&self) -> Option<u64> {
        let ctx = self.context.ctx;
        // A script runs with a client of its own, so the connection is unknown.
        (!ctx.flags().is_script()).then(|| ctx.connection())
    }

    fn name(&self, _: usize) -> &[u8] {
        self.name
    }

    fn stripe(&self, _: usize) -> Stripe {
        self.stripe.unwrap_or_else(|| Stripe::of(self.name))
    }

    fn key_state(&self, _: usize) -> KeyState {
        self.open.key_state()
    }

    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        let gone = self.open.put(lock);
        self.changed();
        gone
    }

    fn delete(&mut self, _: usize) -> Option<LockId> {
        let gone = self.open.delete();
        self.changed();
        gone
    }

    fn touched(&mut self, _: usize) {
        self.changed();
    }

    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        if let Effect::Extended { .. } = effect {
            self.changed();
        }
        let ctx = self.context.ctx;
        match (self.context.replication_target, effect) {
            (ReplicationTarget::Absent, Effect::Dataset { .. }) => {}
            // Nothing receives it; the call only counts the change towards the next save.
            (ReplicationTarget::Absent, _) | (_, Effect::Released) => ctx.replicate_verbatim(),
            (ReplicationTarget::Present, effect) => replicate_effect(ctx, effect, |_| self.raw_name),
        }
    }

    fn notify(&mut self, _: usize, event: LockEvent) {
        self.events.add(event);
    }
}

/// The keys of a command that has several keys.
pub(crate) struct CommandKeys<'a> {
    context: KeyContext<'a>,
    // Closed before the events are sent: fields are dropped in this order.
    keys: Vec<CommandKey<'a>>,
    events: EventsOfKeys<'a>,
    /// The command was replicated verbatim: once for all its keys.
    is_replicated: bool,
}

impl<'a> CommandKeys<'a> {
    /// Opens the keys of a command.
    pub(crate) fn open(context: KeyContext<'a>, args: &CallArgs<'a>, keys: &KeyArgs, intent: Intent) -> Self {
        let open = |arg| CommandKey::open(context, args, arg, None, intent);
        let keys = keys.indices().map(open).collect();
        Self { context, keys, events: EventsOfKeys::none(context.ctx), is_replicated: false }
    }
}

impl Keyspace for CommandKeys<'_> {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn database(&self) -> Database {
        self.context.database
    }

    fn connection(&self) -> Option<u64> {
        self.keys.first().and_then(CommandKey::connection)
    }

    fn name(&self, key: usize) -> &[u8] {
        self.keys[key].name
    }

    fn stripe(&self, key: usize) -> Stripe {
        self.keys[key].stripe(0)
    }

    fn key_state(&self, key: usize) -> KeyState {
        self.keys[key].open.key_state()
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        self.keys[key].put(0, lock)
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.keys[key].delete(0)
    }

    fn touched(&mut self, key: usize) {
        self.keys[key].changed();
    }

    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        if let Effect::Extended { key, .. } = effect {
            self.keys[key].changed();
        }
        match (self.context.replication_target, effect) {
            (ReplicationTarget::Absent, Effect::Dataset { .. }) => {}
            (ReplicationTarget::Absent, _) | (_, Effect::Released) => {
                if !std::mem::replace(&mut self.is_replicated, true) {
                    self.context.ctx.replicate_verbatim();
                }
            }
            (ReplicationTarget::Present, effect) => {
                replicate_effect(self.context.ctx, effect, |key| self.keys[key].raw_name);
            }
        }
    }

    fn notify(&mut self, key: usize, event: LockEvent) {
        // SAFETY: arguments are valid strings for the length of the call.
        unsafe { self.events.add(self.keys[key].raw_name, event) };
    }
}
