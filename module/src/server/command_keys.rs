//! The keys of one command, and how its effects are handed on.

use redis_module::raw;
use redlock_core::durable::DurableState;
use redlock_core::fence::Stripe;
use redlock_core::grammar::Keys;
use redlock_core::table::Database;
use redlock_core::{Effect, Fault, Keyspace, LockId, Occupant};

use super::api::{Ctx, server};
use super::edge::Words;
use super::keys::{Audience, Intent, OpenKey, spell_out};
use crate::state_file;

/// What the keys of a command have in common.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) database: Database,
    pub(crate) audience: Audience,
}

/// The only key of a command, as of most.
pub(crate) struct OneKey<'a> {
    setting: Setting<'a>,
    raw_name: *mut raw::RedisModuleString,
    name: &'a [u8],
    /// Where it is known: finding it takes a while, and most commands need it not at all.
    stripe: Option<Stripe>,
    open: OpenKey,
}

impl<'a> OneKey<'a> {
    /// Opens the key that is a word of the command.
    pub(crate) fn open(
        setting: Setting<'a>,
        words: &Words<'a>,
        word: usize,
        stripe: Option<Stripe>,
        intent: Intent,
    ) -> Self {
        let raw_name = words.raw(word);
        // SAFETY: words are valid strings for the length of the call.
        let open = unsafe { OpenKey::open(setting.ctx, raw_name, intent) };
        Self { setting, raw_name, name: words.word(word), stripe, open }
    }

    /// Tells watchers and caches that the key has changed. The module says so itself, because a refused
    /// command opens its key for writing and yet changes nothing.
    fn changed(&self) {
        // SAFETY: the context is alive, the name valid.
        unsafe { server!(RedisModule_SignalModifiedKey)(self.setting.ctx.raw, self.raw_name) };
    }
}

impl Keyspace for OneKey<'_> {
    fn count(&self) -> usize {
        1
    }

    fn database(&self) -> Database {
        self.setting.database
    }

    fn connection(&self) -> Option<u64> {
        let ctx = self.setting.ctx;
        // A script runs as a client of its own.
        (!ctx.circumstances().is_script()).then(|| ctx.connection())
    }

    fn name(&self, _: usize) -> &[u8] {
        self.name
    }

    fn stripe(&self, _: usize) -> Stripe {
        self.stripe.unwrap_or_else(|| Stripe::of(self.name))
    }

    fn occupant(&self, _: usize) -> Occupant {
        self.open.occupant()
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

    fn store(&mut self, state: &DurableState) -> Result<(), Fault> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        if let Effect::Prolonged { .. } = effect {
            self.changed();
        }
        let ctx = self.setting.ctx;
        match (self.setting.audience, effect) {
            (Audience::Nobody, Effect::Dataset { .. }) => {}
            // With nobody there to hear it, this only counts the change towards the next save.
            (Audience::Nobody, _) | (_, Effect::Released) => ctx.replicate_verbatim(),
            (Audience::Somebody, effect) => spell_out(ctx, effect, |_| self.raw_name),
        }
    }
}

/// The keys of a command that counts them.
pub(crate) struct ManyKeys<'a> {
    setting: Setting<'a>,
    keys: Vec<OneKey<'a>>,
    /// The command itself was handed on; once is enough, however many keys it has.
    is_handed_on: bool,
}

impl<'a> ManyKeys<'a> {
    /// Opens the keys of a command.
    pub(crate) fn open(setting: Setting<'a>, words: &Words<'a>, keys: &Keys, intent: Intent) -> Self {
        let open = |word| OneKey::open(setting, words, word, None, intent);
        Self { setting, keys: keys.words().map(open).collect(), is_handed_on: false }
    }
}

impl Keyspace for ManyKeys<'_> {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn database(&self) -> Database {
        self.setting.database
    }

    fn connection(&self) -> Option<u64> {
        self.keys.first().and_then(OneKey::connection)
    }

    fn name(&self, key: usize) -> &[u8] {
        self.keys[key].name
    }

    fn stripe(&self, key: usize) -> Stripe {
        self.keys[key].stripe(0)
    }

    fn occupant(&self, key: usize) -> Occupant {
        self.keys[key].open.occupant()
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        self.keys[key].put(0, lock)
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.keys[key].delete(0)
    }

    fn store(&mut self, state: &DurableState) -> Result<(), Fault> {
        state_file::store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        if let Effect::Prolonged { key, .. } = effect {
            self.keys[key].changed();
        }
        match (self.setting.audience, effect) {
            (Audience::Nobody, Effect::Dataset { .. }) => {}
            (Audience::Nobody, _) | (_, Effect::Released) => {
                if !std::mem::replace(&mut self.is_handed_on, true) {
                    self.setting.ctx.replicate_verbatim();
                }
            }
            (Audience::Somebody, effect) => {
                spell_out(self.setting.ctx, effect, |key| self.keys[key].raw_name);
            }
        }
    }
}
