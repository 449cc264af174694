//! Combines the decisions of all hooks of one event. Pure.

use serde_json::Value;

use super::exports::ExportError;
use super::failure::HookFailure;
use super::output::{HookOutput, HookPermission};

/// The combined decision of the hooks of one event, in the order of the settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookDecision {
    pub runs: HookRuns,
    /// The whole run must stop, for this reason.
    pub halt: Option<String>,
    /// A hook blocked the event, for this reason.
    pub objection: Option<String>,
    /// The strictest permission for the tool call, with the reasons of the hooks that returned it.
    pub permission: Option<(HookPermission, String)>,
    /// Replaces the tool call's input.
    pub input: Option<Value>,
    /// Replaces the tool's output.
    pub output: Option<Value>,
    /// Text for the model.
    pub context: Vec<String>,
    /// Messages for the user.
    pub messages: Vec<String>,
    /// Changes of permissions.
    pub updates: Vec<Value>,
    /// True if the user's prompt is left out, in favour of the hooks' context.
    pub hides_prompt: bool,
    /// The text that they wrote for a shell to export, or the reason that it is ignored.
    pub exports: Option<Result<String, ExportError>>,
}

/// The runs of the hooks of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookRuns {
    /// The number of hooks that ran.
    pub ran: u32,
    /// Hooks that failed, by their command lines.
    pub failures: Vec<(String, HookFailure)>,
    /// Hooks that were cancelled with the run, by their command lines.
    pub cancelled: Vec<String>,
}

impl HookDecision {
    /// Adds the decision of one hook. Of several: deny beats defer, defer beats ask, ask beats
    /// allow, and a later input replaces an earlier one.
    pub(super) fn add(&mut self, output: HookOutput) {
        let HookOutput {
            stop_run: halt,
            objection,
            permission,
            input,
            output,
            context,
            message,
            hides_prompt,
            updates,
        } = output;
        append_reason(&mut self.halt, halt);
        append_reason(&mut self.objection, objection);
        if let Some((word, why)) = permission {
            match &mut self.permission {
                Some((known, _)) if *known > word => {}
                Some((known, reasons)) if *known == word => {
                    let mut joined = Some(std::mem::take(reasons));
                    append_reason(&mut joined, Some(why));
                    *reasons = joined.unwrap_or_default();
                }
                Some(_) | None => self.permission = Some((word, why)),
            }
        }
        self.input = input.or(self.input.take());
        self.output = output.or(self.output.take());
        self.context.extend(context);
        self.messages.extend(message);
        self.hides_prompt |= hides_prompt;
        self.updates.extend(updates);
    }

    /// Adds the hooks' decision on the same call under another tool name: it can only deny.
    pub fn restrict(&mut self, other: Self) {
        append_reason(&mut self.halt, other.halt);
        append_reason(&mut self.objection, other.objection);
        let is_strict =
            other.permission.as_ref().is_some_and(|(word, _)| *word > HookPermission::Allow);
        if is_strict {
            self.add(HookOutput { permission: other.permission, ..HookOutput::default() });
        }
    }

    /// The texts that the model gets.
    pub fn texts_for_model(&mut self) -> impl Iterator<Item = &mut String> {
        self.objection.iter_mut().chain(&mut self.context)
    }

    /// The reason why a tool call is denied, if it is.
    pub fn denial(&self) -> Option<&str> {
        let denied = self.permission.as_ref().filter(|(word, _)| *word == HookPermission::Deny);
        self.objection.as_deref().or(denied.map(|(_, why)| why.as_str()))
    }

    /// The reason why the tool call is deferred, if it is.
    pub fn deferral(&self) -> Option<&str> {
        let is_open = self.halt.is_none() && self.objection.is_none();
        let deferred = self.permission.as_ref().filter(|(word, _)| *word == HookPermission::Defer);
        deferred.filter(|_| is_open).map(|(_, why)| why.as_str())
    }

    /// Returns true if no hook blocks or defers the tool call, or requires approval.
    pub fn allows(&self) -> bool {
        let asks = self.permission.as_ref().is_some_and(|(word, _)| *word > HookPermission::Allow);
        self.halt.is_none() && self.denial().is_none() && !asks
    }
}

/// Appends a reason on its own line, unless it is already there.
fn append_reason(all: &mut Option<String>, more: Option<String>) {
    let Some(more) = more else { return };
    match all {
        Some(all) if more.is_empty() || all.lines().any(|line| line == more) => {}
        Some(all) if all.is_empty() => *all = more,
        Some(all) => {
            all.push('\n');
            all.push_str(&more);
        }
        None => *all = Some(more),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn word(word: HookPermission, why: &str) -> HookOutput {
        HookOutput { permission: Some((word, why.to_owned())), ..HookOutput::default() }
    }

    #[test]
    fn the_strictest_hook_permission_wins_in_any_order() {
        use HookPermission::{Allow, Ask, Defer, Deny};
        let orders =
            [[Allow, Ask, Deny], [Deny, Ask, Allow], [Ask, Deny, Allow], [Deny, Allow, Ask]];
        for order in orders {
            let mut decision = HookDecision::default();
            for one in order {
                decision.add(word(one, &format!("{one:?}")));
            }
            assert_eq!(decision.permission, Some((Deny, "Deny".to_owned())), "{order:?}");
            assert_eq!(decision.denial(), Some("Deny"));
        }
        for order in [[Ask, Defer], [Defer, Ask]] {
            let mut decision = HookDecision::default();
            for one in order {
                decision.add(word(one, "why"));
            }
            assert!(decision.deferral().is_some() && !decision.allows(), "{order:?}");
            decision.add(word(Deny, "no"));
            assert_eq!(decision.deferral(), None, "{order:?}");
        }
        let mut decision = HookDecision::default();
        decision.add(word(Allow, "a"));
        decision.add(word(Ask, "b"));
        assert_eq!(
            (decision.permission.clone(), decision.denial()),
            (Some((Ask, "b".into())), None)
        );
    }

    #[test]
    fn hook_decision_keeps_each_reason_once() {
        let mut decision = HookDecision::default();
        for why in ["one", "two", "one", ""] {
            decision.add(word(HookPermission::Deny, why));
            decision.add(HookOutput { objection: Some(why.to_owned()), ..HookOutput::default() });
        }
        assert_eq!(decision.permission, Some((HookPermission::Deny, "one\ntwo".to_owned())));
        assert_eq!(decision.denial(), Some("one\ntwo"));
    }

    #[test]
    fn a_later_hook_input_wins_and_a_silent_hook_changes_nothing() {
        let mut decision = HookDecision::default();
        for input in [Some(json!({ "a": 1 })), Some(json!({ "a": 2 })), None] {
            decision.add(HookOutput { input, ..HookOutput::default() });
        }
        assert_eq!(decision.input, Some(json!({ "a": 2 })));
    }

    #[test]
    fn a_hook_decision_for_an_alias_can_only_deny() {
        let mut decision = HookDecision::default();
        let mut other = HookDecision::default();
        other.add(HookOutput {
            input: Some(json!({ "a": 1 })),
            context: Some("words".to_owned()),
            ..word(HookPermission::Allow, "go on")
        });
        decision.restrict(other);
        assert_eq!(decision, HookDecision::default());
        let mut other = HookDecision::default();
        other.add(word(HookPermission::Deny, "no"));
        other.add(HookOutput { objection: Some("never".to_owned()), ..HookOutput::default() });
        decision.restrict(other);
        assert_eq!(decision.denial(), Some("never"));
        assert_eq!(decision.permission, Some((HookPermission::Deny, "no".to_owned())));
    }

    #[test]
    fn continue_false_stops_the_run_even_without_a_reason() {
        let mut decision = HookDecision::default();
        decision.add(HookOutput { stop_run: Some(String::new()), ..HookOutput::default() });
        decision.add(HookOutput::default());
        assert_eq!(decision.halt.as_deref(), Some(""));
    }
}
