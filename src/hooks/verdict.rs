//! What all hooks of one event want together. Pure.

use serde_json::Value;

use super::answer::{HookFailure, HookPermission, HookOutput};

/// What the hooks of one event want, in the order of the settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookDecision {
    /// How many hooks were told.
    pub ran: u32,
    /// The whole run is to stop, and why.
    pub halt: Option<String>,
    /// Somebody objects, and why.
    pub objection: Option<String>,
    /// The strictest word on a tool call, with the reasons of those who said it.
    pub permission: Option<(HookPermission, String)>,
    /// The tool call's input is to be this one.
    pub input: Option<Value>,
    /// The tool's output is to be this one.
    pub output: Option<Value>,
    /// For the model.
    pub context: Vec<String>,
    /// For people.
    pub messages: Vec<String>,
    /// The user's words are to be left out: what the hooks say stands for them.
    pub hides_prompt: bool,
    /// Hooks that failed, by their command lines.
    pub failures: Vec<(String, HookFailure)>,
    /// What they wrote for a shell to export, or why that has no effect.
    pub exports: Option<Result<String, String>>,
    /// Hooks that were ended with the run, by their command lines.
    pub cancelled: Vec<String>,
}

impl HookDecision {
    /// Adds what one hook wants. What it says about the same thing as an earlier one: denials beat
    /// questions, questions beat permissions, and of two new inputs the later one counts.
    pub(super) fn add(&mut self, say: HookOutput) {
        let HookOutput { stop_run: halt, objection, permission, input, output, context, message, hides_prompt } =
            say;
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
    }

    /// Adds what the hooks hold against the same call under another name: they may forbid it, and
    /// nothing else.
    pub fn restrict(&mut self, other: Self) {
        append_reason(&mut self.halt, other.halt);
        append_reason(&mut self.objection, other.objection);
        if let Some((HookPermission::Ask | HookPermission::Deny, _)) = other.permission {
            self.add(HookOutput { permission: other.permission, ..HookOutput::default() });
        }
    }

    /// Why a tool call must not happen, if it must not.
    pub fn denial(&self) -> Option<&str> {
        let denied = self.permission.as_ref().filter(|(word, _)| *word == HookPermission::Deny);
        self.objection.as_deref().or(denied.map(|(_, why)| why.as_str()))
    }

    /// Whether no hook keeps a tool call from happening.
    pub fn allows(&self) -> bool {
        let asks = self.permission.as_ref().is_some_and(|(word, _)| *word == HookPermission::Ask);
        self.halt.is_none() && self.denial().is_none() && !asks
    }
}

/// Adds words, on a line of their own, unless they were said already.
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
    fn the_strictest_word_counts_whoever_says_it_first() {
        use HookPermission::{Allow, Ask, Deny};
        let orders =
            [[Allow, Ask, Deny], [Deny, Ask, Allow], [Ask, Deny, Allow], [Deny, Allow, Ask]];
        for order in orders {
            let mut verdict = HookDecision::default();
            for one in order {
                verdict.add(word(one, &format!("{one:?}")));
            }
            assert_eq!(verdict.permission, Some((Deny, "Deny".to_owned())), "{order:?}");
            assert_eq!(verdict.denial(), Some("Deny"));
        }
        let mut verdict = HookDecision::default();
        verdict.add(word(Allow, "a"));
        verdict.add(word(Ask, "b"));
        assert_eq!((verdict.permission.clone(), verdict.denial()), (Some((Ask, "b".into())), None));
    }

    #[test]
    fn reasons_of_the_same_word_are_kept_once_each() {
        let mut verdict = HookDecision::default();
        for why in ["one", "two", "one", ""] {
            verdict.add(word(HookPermission::Deny, why));
            verdict.add(HookOutput { objection: Some(why.to_owned()), ..HookOutput::default() });
        }
        assert_eq!(verdict.permission, Some((HookPermission::Deny, "one\ntwo".to_owned())));
        assert_eq!(verdict.denial(), Some("one\ntwo"));
    }

    #[test]
    fn of_two_inputs_the_later_counts_and_a_silent_hook_changes_nothing() {
        let mut verdict = HookDecision::default();
        for input in [Some(json!({ "a": 1 })), Some(json!({ "a": 2 })), None] {
            verdict.add(HookOutput { input, ..HookOutput::default() });
        }
        assert_eq!(verdict.input, Some(json!({ "a": 2 })));
    }

    #[test]
    fn a_verdict_under_another_name_only_forbids() {
        let mut verdict = HookDecision::default();
        let mut other = HookDecision::default();
        other.add(HookOutput {
            input: Some(json!({ "a": 1 })),
            context: Some("words".to_owned()),
            ..word(HookPermission::Allow, "go on")
        });
        verdict.restrict(other);
        assert_eq!(verdict, HookDecision::default());
        let mut other = HookDecision::default();
        other.add(word(HookPermission::Deny, "no"));
        other.add(HookOutput { objection: Some("never".to_owned()), ..HookOutput::default() });
        verdict.restrict(other);
        assert_eq!(verdict.denial(), Some("never"));
        assert_eq!(verdict.permission, Some((HookPermission::Deny, "no".to_owned())));
    }

    #[test]
    fn who_says_continue_false_stops_the_run_even_without_a_reason() {
        let mut verdict = HookDecision::default();
        verdict.add(HookOutput { stop_run: Some(String::new()), ..HookOutput::default() });
        verdict.add(HookOutput::default());
        assert_eq!(verdict.halt.as_deref(), Some(""));
    }
}
