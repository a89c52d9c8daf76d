//! How a command runs: words to request, request to decision, decision to answer.

use redlock_core::catalog::Verb;
use redlock_core::fence::Stripe;
use redlock_core::grammar::{self, Keys};
use redlock_core::{Fault, Reply};

use crate::server::api::Ctx;
use crate::server::cache::fetch_soon;
use crate::server::edge::Words;
use crate::server::keys::{CommandKeys, Intent};
use crate::state::{self, BURIALS_PER_COMMAND, State};
use crate::{handoff, restart, sweep};

/// What a command answers.
pub(crate) enum Answer {
    /// A reply of the contract.
    Reply(Reply),
    /// An effect was applied; nobody reads the answer.
    Done,
}

/// What a command comes to.
pub(crate) type Outcome = Result<Answer, Fault>;

/// Runs a command. The words are the server's, the answer goes back to it.
pub(crate) fn run(ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) -> Outcome {
    state::with(|state| {
        let answer = state.execute(ctx, verb, words);
        state.bury(BURIALS_PER_COMMAND);
        handoff::serve(state, ctx);
        answer
    })
    .unwrap_or(Err(Fault::Arg("a command cannot run inside another one of this module")))
}

impl State {
    fn execute(&mut self, ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) -> Outcome {
        match verb {
            Verb::Acquire | Verb::Macquire => self.acquire(ctx, verb, words),
            Verb::Release | Verb::Mrelease => self.release(ctx, verb, words),
            Verb::Extend | Verb::Mextend => self.extend(ctx, verb, words),
            Verb::Inspect => self.inspect(ctx, words),
            Verb::Node => {
                grammar::exactly(verb, words.all())?;
                Ok(Answer::Reply(self.node.describe(state::unburied(), &mut self.clock)))
            }
            Verb::Apply => self.apply(ctx, words),
            Verb::Mark => self.mark(ctx, words),
        }
    }

    fn acquire(&mut self, ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) -> Outcome {
        // Stripes are many and far away; fetched now, the key's is here when its number is asked for.
        fetch_soon(self.node.stripes().near(Stripe::of(words.word(1))));
        let request = grammar::acquire(verb, words.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = self.open(ctx, words, &request.keys, Intent::Change)?;
        let reply = self.node.acquire(&mut keys, &request, &mut self.clock)?;
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

    fn release(&mut self, ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) -> Outcome {
        let request = grammar::release(verb, words.all())?;
        let mut keys = self.open(ctx, words, &request.keys, Intent::Change)?;
        if (self.is_replica || self.is_loading) && ctx.circumstances().is_replay() {
            return Ok(Answer::Reply(self.node.replay_release(&mut keys, &request)));
        }
        self.refuse_on_a_replica()?;
        self.node.release(&mut keys, &request, &mut self.clock).map(Answer::Reply)
    }

    #[inline(never)]
    fn extend(&mut self, ctx: Ctx<'_>, verb: Verb, words: &Words<'_>) -> Outcome {
        let request = grammar::extend(verb, words.all(), self.node.max_ttl_ms())?;
        self.refuse_on_a_replica()?;
        let mut keys = self.open(ctx, words, &request.keys, Intent::Change)?;
        self.node.extend(&mut keys, &request, &mut self.clock).map(Answer::Reply)
    }

    #[inline(never)]
    fn inspect(&mut self, ctx: Ctx<'_>, words: &Words<'_>) -> Outcome {
        grammar::exactly(Verb::Inspect, words.all())?;
        let keys = self.open(ctx, words, &Keys::One, Intent::Look)?;
        self.node.inspect(&keys, &mut self.clock).map(Answer::Reply)
    }

    #[inline(never)]
    fn apply(&mut self, ctx: Ctx<'_>, words: &Words<'_>) -> Outcome {
        if !ctx.circumstances().is_replay() {
            return Err(Fault::Internal);
        }
        let request = grammar::apply(words.all())?;
        let mut keys = self.open(ctx, words, &Keys::One, Intent::Change)?;
        self.node.apply(&mut keys, &request, &mut self.clock)?;
        // A replica of this replica gets the same words.
        ctx.replicate_verbatim();
        Ok(Answer::Done)
    }

    #[inline(never)]
    fn mark(&mut self, ctx: Ctx<'_>, words: &Words<'_>) -> Outcome {
        if !ctx.circumstances().is_replay() {
            return Err(Fault::Internal);
        }
        let (mark, longest_ttl_ms) = grammar::mark(words.all())?;
        restart::learn(self, mark, longest_ttl_ms);
        ctx.replicate_verbatim();
        Ok(Answer::Done)
    }

    fn open<'a>(
        &self,
        ctx: Ctx<'a>,
        words: &'a Words<'a>,
        keys: &'a Keys,
        intent: Intent,
    ) -> Result<CommandKeys<'a>, Fault> {
        let database = u16::try_from(ctx.database())
            .map_err(|_| Fault::Arg("locks can be held in databases 0 to 65535"))?;
        Ok(CommandKeys::open(ctx, words, keys, database, intent, self.audience))
    }

    /// Requests are never replicated, so on a replica they come from clients that took it for a
    /// master; the server itself turns them away unless `replica-read-only` is off.
    fn refuse_on_a_replica(&self) -> Result<(), Fault> {
        if self.is_replica { Err(Fault::Replica) } else { Ok(()) }
    }
}
