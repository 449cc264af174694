//! Decides whether an answer ends the run: Stop hooks, token budget, schema, requirement.

use super::budget::Renewal;
use super::event::{Action, Nudge, ReplyDisposition, StopHookDecision};
use super::state::{KeptAnswer, Phase, RequiredEffort, Run};
use super::step::{StepContext, StepOutcome};
use super::{RecoveryCause, RecoveryPlan, StopReason};

impl Run {
    /// The run when a structured output was accepted.
    pub(super) fn with_output(self) -> Self {
        Self { has_output: true, ..self }
    }

    /// The run without an earlier answer or structured output.
    pub(super) fn without_answer(self) -> Self {
        Self { kept_answer: KeptAnswer::None, has_output: false, ..self }
    }

    /// Treats an answer as the end of the work, unless structured output is required and missing.
    pub(super) fn answer(self, context: StepContext<'_>) -> StepOutcome {
        self.require_output(context, |run| run.done(context))
    }

    /// Handles an answer while background work is running or unreported.
    pub(super) fn answer_early(self, context: StepContext<'_>) -> StepOutcome {
        self.require_output(context, |run| run.await_work(context))
    }

    /// Keeps an answer, and continues by `proceed` unless structured output is required and
    /// missing.
    fn require_output(
        self,
        context: StepContext<'_>,
        proceed: impl FnOnce(Self) -> StepOutcome,
    ) -> StepOutcome {
        let outcome = if context.limits.structured && !self.has_output {
            self.restructure(Some(Nudge::UseStructuredOutput), context)
        } else {
            proceed(self)
        };
        outcome.with(ReplyDisposition::Keep)
    }

    /// Handles an answer that leaves something open: reminds the model of it, once per run.
    pub(super) fn remind(self, context: StepContext<'_>) -> StepOutcome {
        if context.limits.structured {
            return self.answer(context);
        }
        let (run, chosen) = self.choose_plan(RecoveryCause::LeftOpen, context);
        if chosen == RecoveryPlan::Remind {
            let kept_answer = match run.kept_answer {
                KeptAnswer::None | KeptAnswer::UntilWork => KeptAnswer::UntilWork,
                KeptAnswer::ThroughWork => KeptAnswer::ThroughWork,
            };
            let outcome = Self { kept_answer, ..run }.next_turn(context).saying(Nudge::LeftOpen);
            outcome.with(ReplyDisposition::Keep).by(RecoveryCause::LeftOpen, chosen)
        } else {
            run.answer(context)
        }
    }

    /// Handles an answer that ends the work. Stop hooks may object, the token budget may require
    /// more, and the command of `--require` is checked last. An answer after the deadline still
    /// counts if nothing else has to be waited for.
    pub(super) fn done(self, context: StepContext<'_>) -> StepOutcome {
        let run = Self { kept_answer: KeptAnswer::None, ..self };
        if !context.limits.stop_hooks {
            run.continue_without_objection(context)
        } else if context.is_late() {
            run.stop(StopReason::Deadline)
        } else {
            run.enter(Phase::RunningStopHooks).doing(Action::RunStopHooks)
        }
    }

    /// Applies the decision of the Stop hooks. A repeated objection without new work is not
    /// reported again, unless the user set the number of objections.
    pub(super) fn on_stop_hooks(
        self,
        decision: StopHookDecision,
        context: StepContext<'_>,
    ) -> StepOutcome {
        match decision {
            StopHookDecision::Pass => {
                let budgets = self.budgets.renewed_by(Renewal::Consent, &context.limits.budgets);
                Self { budgets, ..self }.continue_without_objection(context)
            }
            StopHookDecision::BlockAgain if !context.limits.repeats_objections => {
                self.stop(StopReason::StopHookBlocked)
            }
            StopHookDecision::Block | StopHookDecision::BlockAgain => {
                self.recover(RecoveryCause::Objected, context, |run| {
                    let run = Self { has_output: false, ..run };
                    let outcome = run.next_turn(context).saying(Nudge::StopHookObjection);
                    outcome.refunding(self.budgets)
                })
            }
            StopHookDecision::Halt => self.stop(StopReason::StopHookPrevented),
        }
    }

    /// Continues when no Stop hook objects.
    fn continue_without_objection(self, context: StepContext<'_>) -> StepOutcome {
        if self.effort.left == 0 {
            return self.conclude(context);
        }
        let (run, chosen) = self.choose_plan(RecoveryCause::Idle, context);
        if chosen == RecoveryPlan::Nudge {
            let effort = RequiredEffort { since_nudge: 0, ..run.effort };
            let run = Self { effort, kept_answer: KeptAnswer::ThroughWork, ..run };
            let outcome = run.next_turn(context).saying(Nudge::MoreEffort);
            outcome.by(RecoveryCause::Idle, chosen)
        } else {
            run.conclude(context)
        }
    }

    pub(super) fn conclude(self, context: StepContext<'_>) -> StepOutcome {
        if !context.limits.requirement {
            self.stop(StopReason::Completed)
        } else if context.is_late() {
            self.stop(StopReason::Deadline)
        } else {
            self.enter(Phase::RunningRequirement).doing(Action::RunRequirement)
        }
    }

    /// Asks again for structured output after an answer that was text or did not fit its schema.
    pub(super) fn restructure(self, nudge: Option<Nudge>, context: StepContext<'_>) -> StepOutcome {
        self.recover(RecoveryCause::Unstructured, context, |run| {
            let outcome = run.next_turn(context).refunding(self.budgets);
            if let Some(nudge) = nudge { outcome.saying(nudge) } else { outcome }
        })
    }

    /// Applies the result of the command of `--require`.
    pub(super) fn on_requirement(self, passed: bool, context: StepContext<'_>) -> StepOutcome {
        if passed {
            return self.stop(StopReason::Completed);
        }
        self.recover(RecoveryCause::Unmet, context, |run| {
            let run = Self { has_output: false, ..run };
            let all = context.limits.budgets.requirement_tries;
            let nudge = unmet(run.budgets.requirement_tries, all);
            run.next_turn(context).saying(nudge).refunding(self.budgets)
        })
    }
}

impl StepOutcome {
    /// Ends the run with the answer that preceded a reminder or a request for more effort if the
    /// work for it failed: without that nudge, the run would have succeeded. Does not apply if the
    /// answer has yet to be accepted and the server allows no further request in case it is not.
    pub(super) fn keeping_answer(self, context: StepContext<'_>) -> Self {
        let Action::Finish(reason) = self.action else { return self };
        let is_final = !(context.limits.stop_hooks || context.limits.requirement);
        let may_go_on = is_final || self.run.attempts.not_before <= context.at;
        let has_answer = self.run.kept_answer != KeptAnswer::None;
        if !(has_answer && reason.info().answer_may_stand && may_go_on) {
            return self;
        }
        let reply = self.edit.reply;
        let reply = if reply == ReplyDisposition::Keep { ReplyDisposition::Drop } else { reply };
        Run { quota_ended: false, effort: RequiredEffort::default(), ..self.run }
            .done(context)
            .with(reply)
    }
}

/// The nudge for a failed check. Its wording changes each time, so that the model does not repeat
/// its answer. `left` of `all` further checks remain after the next.
fn unmet(left: u8, all: u8) -> Nudge {
    match (left, all.saturating_sub(left)) {
        (0, 2..) => Nudge::UnmetLast,
        (_, 0..=1) => Nudge::Unmet,
        (1.., 2..) => Nudge::UnmetAgain,
    }
}
