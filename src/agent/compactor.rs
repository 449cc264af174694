//! Keeps the conversation within the context window and acceptable to the service: estimates,
//! summaries, repairs. The state machine decides on their time, this module on their content.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::journal::Journal;
use crate::model::{Bounds, ModelReply, WebSearch, web_search_price};
use crate::recovery::{
    AvailableMitigations, CallPurpose, ClassifiedFault, FaultKind, Limits, ModelCall, Money, Nudge,
    OptionalField, PROMPT_NOTES, ReplyMode, SUMMARISE, TokenEstimate, Trim,
};
use crate::tools::{ToolOutcome, Toolbox};
use crate::transcript::compaction::{
    self, CompactionInputs, CutPoint, DROPS_MAX, ProgramTexts, ReadFile, RestoredFile,
    restored_bytes,
};
use crate::transcript::{
    Block, Contributor, History, Message, ToolCall, can_repair_rejected, fixed_bytes, folding,
    has_media, largest_parts, repair_rejected, shorten_unanswered, unanswered,
};

use super::accounting::WorstCaseCost;
use super::conversation::Conversation;
use super::messages::text_of;
use super::model_caller::ModelCaller;

/// Largest summarising request, as a fraction of the room in the window: the size of its text is an
/// estimate, too.
const SUMMARY_ROOM: (u64, u64) = (3, 4);
/// Most input of a summary, in tokens: none of it is in the service's prompt cache, and more text
/// of long results adds little to a summary.
const SUMMARY_INPUT_MAX: u64 = 150_000;
/// Time limit for reading all files back after a summary. They are optional.
const READ_BACK_LIMIT: Duration = Duration::from_secs(2);
/// The text in place of a summary that the model did not write.
const NO_SUMMARY: &str = "No summary could be made of the older messages, which were removed. Check \
                          the present state of the work before you go on.";
/// Number of the largest contributors to an overflow that are reported.
const CONTRIBUTORS_MAX: usize = 5;

/// The state of compaction.
#[derive(Default)]
pub(super) struct Compactor {
    summarising: Option<SummaryInProgress>,
}

impl Compactor {
    /// Drops the text that came in place of a summary.
    pub(super) fn drop_summary(&mut self) {
        self.summarising.iter_mut().for_each(|summarising| summarising.answer = None);
    }

    /// Drops the summary that was being requested, if there is one.
    pub(super) fn end_summary(&mut self) {
        self.summarising = None;
    }

    pub(super) fn is_summarising(&self) -> bool {
        self.summarising.is_some()
    }

    /// Drops the cached summarising request: another model may have another window.
    pub(super) fn forget_summary_request(&mut self) {
        self.summarising.iter_mut().for_each(|summarising| summarising.request = None);
    }
}

/// A summary that is being requested.
#[derive(Default)]
struct SummaryInProgress {
    /// The part of the conversation that it will replace. Always present if a summary was offered
    /// to the state machine as a mitigation.
    cut: Option<CutPoint>,
    /// Number of times that the summarising request itself was too long.
    drops: u8,
    /// The request, cached until something changes it.
    request: Option<History>,
    /// The reply with the summary.
    answer: Option<ModelReply>,
    restored: Vec<RestoredFile>,
}

/// The parts of a run that its requests are made of, for estimates, summaries and repairs.
pub(super) struct ContextView<'a> {
    pub(super) compactor: &'a mut Compactor,
    pub(super) conversation: &'a mut Conversation,
    pub(super) journal: &'a mut Journal,
    pub(super) caller: &'a mut ModelCaller,
    pub(super) limits: &'a Limits,
}

impl ContextView<'_> {
    /// Estimates the size and the cost of the next request.
    pub(super) fn estimate_request(&mut self, purpose: CallPurpose, fast: bool) -> TokenEstimate {
        let (input, token) = self.costs(purpose, fast);
        let size = self.size_of(purpose);
        // Mitigations are only needed when the window is crowded.
        let crowded = purpose == CallPurpose::Reply && size >= self.threshold();
        TokenEstimate {
            input,
            token,
            left: self.caller.accounting.left(),
            ceiling: self.caller.output_limit(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
            fixed: u32::try_from(self.history().fixed()).unwrap_or(u32::MAX),
            window: u32::try_from(self.caller.window()).unwrap_or(u32::MAX),
            counted: self.request(purpose).is_counted(),
            needs_whole_reply: self.caller.needs_whole_reply(),
            mitigations: if crowded { self.room_mitigations() } else { AvailableMitigations::NONE },
        }
    }

    /// Returns the messages of the next request, for questions about their size.
    fn request(&mut self, purpose: CallPurpose) -> &History {
        match purpose {
            CallPurpose::Reply => self.history(),
            CallPurpose::Summary(_) => self.summary_request(),
        }
    }

    /// Records the number of tokens that the service counts for the next request. Its count may be
    /// a little too low, so a hundredth is added.
    pub(super) fn record_count(&mut self, purpose: CallPurpose, tokens: u64) {
        self.record_size(purpose, tokens.saturating_add(tokens.div_ceil(100)));
    }

    /// Records the exact number of tokens of the next request.
    pub(super) fn record_size(&mut self, purpose: CallPurpose, tokens: u64) {
        match purpose {
            CallPurpose::Reply => self.conversation.record_count(tokens),
            CallPurpose::Summary(_) => {
                self.summary_request();
                let summarising = self.compactor.summarising.as_mut();
                if let Some(request) = summarising.and_then(|summary| summary.request.as_mut()) {
                    request.record_count(tokens);
                }
            }
        }
    }

    pub(super) fn worst_case(&mut self, ask: &ModelCall) -> WorstCaseCost {
        let input = self.input_bound(ask.purpose);
        let prices = self.caller.endpoint().facts.prices_at(ask.fast);
        let searches = self.searches(ask.purpose);
        let bounds = Bounds { input, window: self.caller.window(), cap: ask.cap, searches };
        WorstCaseCost { bounds, prices, endpoint: self.caller.endpoint().clone() }
    }

    /// Returns the worst-case cost of the next request's input, and of each token of its output.
    fn costs(&mut self, purpose: CallPurpose, fast: bool) -> (Money, Money) {
        let bound = self.input_bound(purpose);
        let Some(prices) = self.caller.endpoint().facts.prices_at(fast) else {
            return (Money::ZERO, Money::ZERO);
        };
        let searches = web_search_price() * u64::from(self.searches(purpose));
        (prices.max_input_price() * bound + searches, prices.rates.output)
    }

    /// Returns the maximum number of web searches by the service for the request.
    fn searches(&self, purpose: CallPurpose) -> u32 {
        let searches = self.caller.searches() && purpose == CallPurpose::Reply;
        if searches { WebSearch::SEARCHES_MAX } else { 0 }
    }

    /// Returns an upper bound of the next request's input, in tokens.
    fn input_bound(&mut self, purpose: CallPurpose) -> u64 {
        let results = u64::from(self.searches(purpose)) * WebSearch::RESULT_TOKENS_MAX;
        self.request(purpose).upper_bound().saturating_add(results)
    }

    fn history(&self) -> &History {
        self.conversation.history()
    }

    /// Returns the number of tokens that the messages may have before compaction is due.
    fn room(&self) -> u64 {
        self.threshold().saturating_sub(self.history().fixed())
    }

    /// Returns the number of tokens at which compaction is due.
    fn threshold(&self) -> u64 {
        let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (window, fixed) = (tokens(self.caller.window()), tokens(self.history().fixed()));
        self.limits.crowded_from(window, self.caller.output_limit(), fixed).into()
    }

    fn cut(&self) -> Option<CutPoint> {
        compaction::plan(self.conversation.messages(), self.room(), self.history().density())
    }

    /// Returns the mitigations that could make room.
    fn room_mitigations(&self) -> AvailableMitigations {
        let messages = self.conversation.messages();
        let folds = folding::has_foldable(messages) || self.can_shrink();
        AvailableMitigations { folds, rounds: self.cut().is_some(), ..AvailableMitigations::NONE }
    }

    /// Returns true if truncating the results of the last round would help where neither folding
    /// nor a summary can.
    fn can_shrink(&self) -> bool {
        compaction::can_shrink(self.conversation.messages(), self.room(), self.history().density())
    }

    /// Returns the mitigations that the conversation offers against a failure.
    pub(super) fn mitigations(
        &mut self,
        fault: &ClassifiedFault,
        ask: &ModelCall,
    ) -> AvailableMitigations {
        let output = fault.counts_output() && self.leaves_less_than(ask);
        // A smaller limit was learned from this refusal.
        let refused_cap = self.caller.output_limit() < ask.cap;
        let common = AvailableMitigations {
            output: output || refused_cap,
            thinking: self.is_refused_for(OptionalField::REASONING, fault, ask.purpose),
            cache_marks: self.is_refused_for(OptionalField::CACHE_MARKS, fault, ask.purpose),
            streaming: ask.mode == ReplyMode::Streaming && fault.refuses(OptionalField::Streaming),
            ..AvailableMitigations::NONE
        };
        if ask.purpose != CallPurpose::Reply {
            let drops = self.compactor.summarising.as_ref().map_or(0, |summary| summary.drops);
            return AvailableMitigations { rounds: drops < DROPS_MAX, ..common };
        }
        let messages = self.conversation.messages();
        let block = fault
            .rejected_content()
            .is_some_and(|content| can_repair_rejected(messages, fault.rejected_block(), content));
        let for_room = self.room_mitigations();
        // Lowering the output cap does not help above the compaction threshold.
        let is_crowded = self.history().estimate() >= self.threshold();
        let output = output && (!is_crowded || for_room == AvailableMitigations::NONE);
        let found = AvailableMitigations {
            folds: for_room.folds,
            rounds: for_room.rounds,
            media: has_media(messages),
            block: block || !self.caller.refused_tools(fault).is_empty(),
            output: output || refused_cap,
            ..common
        };
        let is_explained = found.output || found.thinking || found.cache_marks || found.streaming;
        let may_omit = matches!(fault.fault.kind, FaultKind::Refused { .. })
            && self.conversation.next_omitted().is_some();
        AvailableMitigations { added: may_omit && !is_explained, ..found }
    }

    /// Returns the approximate size of the current request, in tokens.
    pub(super) fn size_of(&mut self, purpose: CallPurpose) -> u64 {
        self.request(purpose).estimate()
    }

    /// Returns true if the request fits but leaves less room for output than was asked for: the
    /// next one will ask for no more than fits.
    fn leaves_less_than(&mut self, ask: &ModelCall) -> bool {
        let left = self.caller.window().saturating_sub(self.size_of(ask.purpose));
        left > 0 && u64::from(ask.cap) > left.max(self.limits.caps.floor.into())
    }

    // --- summaries --------------------------------------------------------------------------

    /// Returns the request that asks for a summary: the older part as text, as much of it as fits.
    fn summary_request(&mut self) -> &History {
        let mut summarising = self
            .compactor
            .summarising
            .take()
            .unwrap_or_else(|| SummaryInProgress { cut: self.cut(), ..Default::default() });
        let request = summarising.request.take().unwrap_or_else(|| {
            let messages = self.conversation.messages();
            let older = summarising.cut.map_or(messages, |cut| cut.older(messages));
            let text = self.older_as_text(older, summarising.drops);
            let message = Message::user(vec![Block::text(text), Block::text(SUMMARISE.request)]);
            History::new(vec![message], fixed_bytes(SUMMARISE.system, &[]))
        });
        self.compactor.summarising.insert(summarising).request.insert(request)
    }

    /// Returns the text of the summarising request, short enough not to overflow itself.
    fn older_as_text(&self, older: &[Message], drops: u8) -> String {
        let reserved = u64::from(self.limits.caps.summary);
        let window = self.caller.window();
        let room = window.saturating_sub(reserved).max(window / 2);
        let (part, of) = SUMMARY_ROOM;
        let room = (room / of * part).min(SUMMARY_INPUT_MAX);
        compaction::render(older, room, self.history().density(), drops)
    }

    /// Returns the messages of the request that is about to be sent.
    pub(super) fn summary_messages(&mut self) -> Vec<Message> {
        self.summary_request().messages().to_vec()
    }

    /// Keeps a summary until the machine has decided about it, and reads back the files whose
    /// content it removes from the conversation.
    pub(super) async fn hold_summary(&mut self, answer: ModelReply, toolbox: &Arc<Toolbox>) {
        let Some(mut summarising) = self.compactor.summarising.take() else { return };
        summarising.restored.clear();
        if let Some(cut) = &summarising.cut {
            let readings = compaction::recently_read(self.conversation.messages(), cut);
            let most = usize::try_from(restored_bytes(cut)).unwrap_or(usize::MAX);
            let (toolbox, restored) = (Arc::clone(toolbox), &mut summarising.restored);
            let reading_back = async move {
                for reading in readings {
                    restored.extend(read_back(&toolbox, reading, most).await);
                }
            };
            // Files that take longer are left out.
            let _ = tokio::time::timeout(READ_BACK_LIMIT, reading_back).await;
        }
        summarising.answer = Some(answer);
        self.compactor.summarising = Some(summarising);
    }

    /// Replaces the older part of the conversation by the summary, or by a note that there is none.
    /// Returns the size of the conversation before and after, in tokens.
    pub(super) fn compact(&mut self) -> Option<(u64, u64)> {
        let summarising = self.compactor.summarising.take()?;
        let cut = summarising.cut?;
        let before = self.history().estimate();
        let carried = CompactionInputs {
            restored: &summarising.restored,
            program_texts: ProgramTexts { own: &Nudge::TEXTS, notes: &PROMPT_NOTES },
        };
        let summary = summarising.answer.map(|answer| text_of(&answer.content));
        let summary = summary.filter(|text| !text.trim().is_empty());
        let summary = summary.unwrap_or_else(|| NO_SUMMARY.to_owned());
        self.conversation.keep_added();
        self.conversation.edit_history(self.journal, |messages| {
            let whole = std::mem::take(messages);
            *messages = compaction::rebuild(whole, &cut, &summary, &carried);
        });
        Some((before, self.history().estimate()))
    }

    /// Shortens the prompt that the run before ended with because it alone fills the window: every
    /// later request would contain it, and a summary keeps the newest messages.
    pub(super) fn shorten_unfit_prompt(&mut self) {
        let prompt = unanswered(self.conversation.messages());
        if self.history().density().of(prompt) > self.caller.window() / 2 {
            self.conversation.edit_history(self.journal, |messages| shorten_unanswered(messages));
        }
    }

    // --- cuts -------------------------------------------------------------------------------

    /// Removes or repairs content, so that the request fits or is accepted.
    pub(super) fn trim(&mut self, trim: Trim) {
        match trim {
            Trim::OldestRounds => {
                if let Some(summarising) = &mut self.compactor.summarising {
                    summarising.drops = summarising.drops.saturating_add(1);
                    summarising.request = None;
                }
            }
            Trim::Folds => self.fold(),
            Trim::Media => self.strip_media(),
            Trim::Block => self.repair_block(),
            Trim::Added => self.conversation.omit_added(),
            Trim::ThinkingParameter => self.drop_refused_field(OptionalField::REASONING),
            Trim::CacheMarks => self.drop_refused_field(OptionalField::CACHE_MARKS),
            Trim::Streaming => self.drop_refused_field(&[OptionalField::Streaming]),
        }
    }

    fn fold(&mut self) {
        let (room, density) = (self.room(), self.history().density());
        self.conversation.edit_history(self.journal, |messages| {
            let folds = folding::foldable(messages);
            let is_empty = folds.is_empty();
            folding::apply_folds(messages, folds);
            // Truncation was offered as a mitigation where there was nothing to fold.
            if is_empty || density.of(messages) > room {
                compaction::shrink(messages, room, density);
            }
        });
    }

    fn repair_block(&mut self) {
        let Some(fault) = self.caller.last_failure() else { return };
        let Some(content) = fault.rejected_content() else { return };
        let path = fault.rejected_block();
        let repair = self
            .conversation
            .edit_history(self.journal, |messages| repair_rejected(messages, path, content));
        self.conversation.record_refusal(repair.as_ref());
    }

    /// Returns the largest contributors to the context, for the report of an overflow.
    pub(super) fn contributors(&self) -> Vec<Contributor> {
        let (fixed, density) = (self.caller.fixed(), self.history().density());
        let messages = self.conversation.messages();
        largest_parts(messages, &fixed.system, fixed.tools(), density, CONTRIBUTORS_MAX)
    }
}

/// Reads a file again, as the tool would, under the same permission rules.
async fn read_back(toolbox: &Arc<Toolbox>, reading: ReadFile, most: usize) -> Option<RestoredFile> {
    let mut input = json!({ "file_path": reading.path });
    if let Some(offset) = reading.offset {
        input["offset"] = json!(offset);
    }
    if let Some(limit) = reading.limit {
        input["limit"] = json!(limit);
    }
    let call = ToolCall { id: "read_back".to_owned(), name: "Read".to_owned(), input };
    let permit = toolbox.check(move |toolbox| toolbox.admit(&call)).await.ok()?.ok()?;
    let cancel = CancellationToken::new();
    let _cancelled_with_us = cancel.clone().drop_guard();
    // The text beside an image is not part of the file.
    let is_text = |block: &Block| matches!(block, Block::Text { .. });
    let is_whole = |outcome: &ToolOutcome| !outcome.is_error && outcome.content.iter().all(is_text);
    let outcome = Some(toolbox.run(permit, cancel).await).filter(is_whole)?;
    let mut content = text_of(&outcome.content);
    content.truncate(content.floor_char_boundary(most));
    (!content.is_empty()).then_some(RestoredFile { path: reading.path, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Credential, ModelClient, ModelService, Reasoning, Secret, model_facts};
    use crate::recovery::{CompactionTrigger, ConnectionChoice, Ledger};
    use crate::secrets::KnownSecrets;

    use super::super::accounting::Accounting;
    use super::super::setup::ModelEndpoint;
    use super::super::shared_ledger::SharedLedger;

    fn caller() -> ModelCaller {
        let credential = Credential::ApiKey(Secret::new("test-key-0123456789"));
        let client = ModelClient::new(ModelService::new("http://127.0.0.1:9", credential));
        let facts = model_facts("sonnet");
        let client = Arc::new(client.expect("the address is right"));
        let endpoint = ModelEndpoint { label: facts.name.clone(), facts, client };
        let accounting = Accounting::new(SharedLedger::new(Ledger::new(None)), None, None);
        ModelCaller::new(String::new(), vec![endpoint], Reasoning::LEAST, None, accounting)
    }

    /// Returns the estimate of a request, and the bounds of its usage.
    fn measure(mut caller: ModelCaller, purpose: CallPurpose) -> (TokenEstimate, Bounds) {
        let mut view = ContextView {
            compactor: &mut Compactor::default(),
            conversation: &mut Conversation::new(KnownSecrets::default()),
            journal: &mut Journal::disabled(),
            caller: &mut caller,
            limits: &Limits::default(),
        };
        let call = ModelCall {
            purpose,
            model_index: 0,
            cap: 1_000,
            mode: ReplyMode::Streaming,
            connection: ConnectionChoice::Pooled,
            attempt: 1,
            fast: false,
            may_wait_for_shared_limit: false,
        };
        (view.estimate_request(purpose, false), view.worst_case(&call).bounds)
    }

    /// The request for a summary does not offer the search tool.
    #[test]
    fn only_replies_of_a_web_search_are_estimated_with_the_cost_of_searches() {
        let both = |purpose| {
            let searching = caller().with_web_search(WebSearch::default());
            [measure(caller(), purpose), measure(searching, purpose)]
        };
        let [without, with] = both(CallPurpose::Summary(CompactionTrigger::Threshold));
        assert_eq!(with, without);
        let [(without, bounds), (with, bounds_with)] = both(CallPurpose::Reply);
        let results = WebSearch::RESULT_TOKENS_MAX;
        let searched =
            Bounds { input: bounds.input + results, searches: WebSearch::SEARCHES_MAX, ..bounds };
        assert_eq!(bounds_with, searched);
        let input = caller().endpoint().facts.prices.expect("it is known").max_input_price();
        let cost = without.input + input * results + web_search_price();
        assert_eq!(with, TokenEstimate { input: cost, ..without });
    }
}
