//! The simulated scenarios: the limits of their runs and the behaviour of their services.

use std::time::Duration;

use outlast_core::recovery::{
    AccountKind, AvailableMitigations, Budgets, CallPurpose, ConnectionChoice, CutKind,
    EndpointStatus, ErrorBody, ErrorClass, Event, Failure, FailureStage, FastMode, Incomplete,
    Limits, LoopStatus, ModelCall, Moment, Persistence, QuerySource, ReplyKind, ReplyMode,
    RetryAfter, RetryAfterSource, RetryHint,
};

use super::super::{failure, failure_at_stage, failure_with_retry_after, limits, secs};
use super::RandomSource;
use super::environment::Simulation;

/// The kind of scenario. Independent random events alone never make a long outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServiceScenario {
    /// Two calls in five fail, each in its own way.
    Flaky,
    /// 529 until a moment within a day, then everything works.
    Overloaded,
    /// 429 for ever, without a word about when to come back.
    Limited,
    /// 429 for ever, with a wish between nothing and a quarter of an hour.
    LimitedWithWishes,
    /// Everything takes minutes, or stalls.
    SlowDrip,
    /// Streams tear, before or after their first block; replies in one piece come through.
    Torn,
    /// Every reply is cut.
    Truncating,
    /// Every reply is empty.
    Empty,
    /// Every turn is paused.
    Pausing,
    /// Keys are rejected, and sometimes cannot be renewed.
    KeysChange,
    /// Connections go stale, are refused, or die.
    Wires,
    /// Anything at all, whatever it means.
    Anything,
    /// Every round of tools fills a good part of the window; summaries help.
    Refilling,
    /// One round of tools is all that the window holds; summaries do not help.
    Stuffed,
    /// The window is smaller than configured.
    Misjudged,
    /// Summaries are empty, refused, too long to ask for, or no summaries.
    NoSummaries,
    /// Tools bring blocks that the service refuses.
    Poisoned,
    /// Tools bring media that are too large.
    TooLarge,
    /// The preferred model is down for an hour; the others work.
    OneModelDown,
    /// Overloads come and go by the minute.
    Flapping,
    /// A credential lasts some minutes.
    KeysExpire,
    /// There is not enough of fast mode.
    FastIsShort,
    /// The work is not accepted at once.
    Demanding,
    /// The model repeats itself.
    Spiralling,
    /// Something on the way answers in place of the service now and then: a page instead of an
    /// error, a redirection, a rejected credential that was good and is good.
    OddRefusals,
    /// A page of HTML in place of every reply until a moment within a day, then everything works.
    Pages,
    /// Replies end without a word that they are whole.
    Unfinished,
    /// Requests that fit are called too long now and then.
    Contradicted,
    /// Requests that ask for thinking are refused.
    Unthinking,
    /// The first attempt of every call fails, and the second works: a full service, or a proxy that
    /// closes kept connections. The retry quota is small.
    FirstAttemptsFail,
    /// All models are out, and only the preferred one comes back.
    BothModelsOut,
}

pub(super) const DAYS: [ServiceScenario; 31] = [
    ServiceScenario::Flaky,
    ServiceScenario::Overloaded,
    ServiceScenario::Limited,
    ServiceScenario::LimitedWithWishes,
    ServiceScenario::SlowDrip,
    ServiceScenario::Torn,
    ServiceScenario::Truncating,
    ServiceScenario::Empty,
    ServiceScenario::Pausing,
    ServiceScenario::KeysChange,
    ServiceScenario::Wires,
    ServiceScenario::Anything,
    ServiceScenario::Refilling,
    ServiceScenario::Stuffed,
    ServiceScenario::Misjudged,
    ServiceScenario::NoSummaries,
    ServiceScenario::Poisoned,
    ServiceScenario::TooLarge,
    ServiceScenario::OneModelDown,
    ServiceScenario::Flapping,
    ServiceScenario::KeysExpire,
    ServiceScenario::FastIsShort,
    ServiceScenario::Demanding,
    ServiceScenario::Spiralling,
    ServiceScenario::OddRefusals,
    ServiceScenario::Pages,
    ServiceScenario::Unfinished,
    ServiceScenario::Contradicted,
    ServiceScenario::Unthinking,
    ServiceScenario::FirstAttemptsFail,
    ServiceScenario::BothModelsOut,
];

impl ServiceScenario {
    /// Whether the window matters.
    fn is_about_the_window(self) -> bool {
        matches!(self, Self::Refilling | Self::Stuffed | Self::Misjudged | Self::NoSummaries)
    }

    /// Whether a run is to see much of the day.
    fn is_long(self) -> bool {
        self.is_about_the_window()
            || matches!(
                self,
                Self::Poisoned
                    | Self::TooLarge
                    | Self::OneModelDown
                    | Self::Flapping
                    | Self::KeysExpire
                    | Self::FastIsShort
                    | Self::Spiralling
                    | Self::OddRefusals
                    | Self::Unfinished
                    | Self::Contradicted
                    | Self::Unthinking
                    | Self::FirstAttemptsFail
                    | Self::BothModelsOut
            )
    }

    pub(super) fn window(self, dice: &mut RandomSource) -> u32 {
        if self.is_about_the_window() || self == Self::KeysExpire {
            dice.pick(&[40_000, 100_000, 200_000])
        } else {
            dice.pick(&[u32::MAX, u32::MAX, 100_000])
        }
    }

    /// The tokens that a round of tools adds to a window of `window` tokens.
    pub(super) fn growth(self, window: u32, dice: &mut RandomSource) -> u32 {
        match self {
            Self::Stuffed => dice.between(window / 2, window),
            Self::Refilling | Self::Misjudged | Self::NoSummaries | Self::KeysExpire => {
                dice.between(window / 40, window / 5)
            }
            Self::Flaky | Self::Anything => dice.between(0, 30_000),
            Self::Overloaded
            | Self::Limited
            | Self::LimitedWithWishes
            | Self::SlowDrip
            | Self::Torn
            | Self::Truncating
            | Self::Empty
            | Self::Pausing
            | Self::KeysChange
            | Self::Wires
            | Self::Poisoned
            | Self::TooLarge
            | Self::OneModelDown
            | Self::Flapping
            | Self::FastIsShort
            | Self::Demanding
            | Self::Spiralling
            | Self::OddRefusals
            | Self::Pages
            | Self::Unfinished
            | Self::Contradicted
            | Self::Unthinking
            | Self::FirstAttemptsFail
            | Self::BothModelsOut => dice.between(0, 3_000),
        }
    }
}

pub(super) fn rules(day: ServiceScenario, dice: &mut RandomSource) -> Limits {
    let plain = plain_rules(dice);
    let full = Budgets { retries: 10, bucket: 500, ..plain.budgets };
    let switches = full.switches.max(1);
    match day {
        ServiceScenario::Refilling | ServiceScenario::Misjudged | ServiceScenario::KeysExpire => {
            let budgets = Budgets { refreshes: 1, ..full };
            Limits { budgets, ..plain }
        }
        ServiceScenario::Stuffed | ServiceScenario::NoSummaries => {
            let compactions = dice.pick(&[Some(1), Some(3), None]);
            Limits { budgets: Budgets { compactions, ..full }, ..plain }
        }
        ServiceScenario::OneModelDown => {
            let fallback_return = dice.pick(&[None, Some(secs(600))]);
            let (account, source) = (AccountKind::ApiKey, QuerySource::Foreground);
            let budgets = Budgets { switches, ..full };
            Limits { budgets, fallback_return, account, source, ..plain }
        }
        ServiceScenario::Flapping => {
            let source = QuerySource::Foreground;
            Limits { budgets: full, source, overload_limit: None, ..plain }
        }
        ServiceScenario::FirstAttemptsFail => {
            let budgets = Budgets { bucket: dice.pick(&[5, 10, 20]), ..full };
            Limits { budgets, source: QuerySource::Foreground, ..plain }
        }
        ServiceScenario::BothModelsOut => {
            let budgets = Budgets { switches, ..full };
            let source = QuerySource::Foreground;
            Limits { budgets, source, overload_limit: None, ..plain }
        }
        ServiceScenario::FastIsShort => {
            let fast = Some(FastMode::default());
            let (account, source) = (AccountKind::ApiKey, QuerySource::Foreground);
            let cool_downs = dice.pick(&[1, 8]);
            let budgets = Budgets { cool_downs, ..full };
            Limits { budgets, fast, account, source, max_retry_wait: secs(600), ..plain }
        }
        ServiceScenario::Demanding => {
            let requirement = dice.one_in(2);
            let structured = !requirement || dice.one_in(2);
            Limits { budgets: full, requirement, structured, ..plain }
        }
        ServiceScenario::Poisoned
        | ServiceScenario::TooLarge
        | ServiceScenario::Spiralling
        | ServiceScenario::OddRefusals
        | ServiceScenario::Unfinished
        | ServiceScenario::Contradicted
        | ServiceScenario::Unthinking => Limits { budgets: full, ..plain },
        ServiceScenario::Flaky
        | ServiceScenario::Overloaded
        | ServiceScenario::Limited
        | ServiceScenario::LimitedWithWishes
        | ServiceScenario::SlowDrip
        | ServiceScenario::Torn
        | ServiceScenario::Truncating
        | ServiceScenario::Empty
        | ServiceScenario::Pausing
        | ServiceScenario::KeysChange
        | ServiceScenario::Wires
        | ServiceScenario::Pages
        | ServiceScenario::Anything => plain,
    }
}

/// Rules that fit every day.
fn plain_rules(dice: &mut RandomSource) -> Limits {
    let budgets = Budgets {
        turns: dice.pick(&[None, Some(1), Some(3), Some(20)]),
        retries: dice.small(11),
        bucket: dice.pick(&[0, 30, 500, 500]),
        switches: dice.small(3),
        refreshes: dice.small(2),
        probes: dice.pick(&[2, 24]),
        ..Budgets::DEFAULT
    };
    let persistence =
        dice.pick(&[Persistence::Off, Persistence::Off, Persistence::Capacity, Persistence::All]);
    let patient = persistence != Persistence::Off || dice.one_in(2);
    let deadline = patient.then(|| secs(dice.pick(&[60, 3_600, 86_400])));
    let deadline = deadline.map(|length| Moment::default().after(length));
    let tenth = |end: Moment| Moment::from_millis(end.as_millis() / 10 * 9);
    Limits {
        budgets,
        persistence,
        deadline,
        wrap_up: deadline.map(tenth),
        max_retry_wait: persistence.max_retry_wait(),
        heartbeat: secs(dice.pick(&[30, 600, 600])),
        account: dice.pick(&[
            AccountKind::ApiKey,
            AccountKind::Enterprise,
            AccountKind::Subscription,
        ]),
        source: dice.pick(&[
            QuerySource::Foreground,
            QuerySource::Foreground,
            QuerySource::Background,
        ]),
        overload_limit: dice.pick(&[None, None, Some(3)]),
        effort: dice.pick(&[None, None, Some(20_000)]),
        auto_compact: !dice.one_in(6),
        fast: dice.one_in(6).then(FastMode::default),
        fallback_return: dice.one_in(3).then(|| secs(600)),
        endpoint_changes: dice.pick(&[0b00, 0b01, 0b10, 0b11]),
        requirement: dice.one_in(12),
        stop_hooks: dice.one_in(12),
        structured: dice.one_in(12),
        ..limits()
    }
}

impl Simulation {
    /// The outcome of a request.
    pub(super) fn outcome(&mut self, ask: ModelCall) -> Event {
        if let Some(failed) = self.service_fault(ask).or_else(|| self.refusal(ask)) {
            let remedies = self.talk.remedies(ask.purpose);
            Event::Failed(Failure {
                mitigations: remedies,
                endpoint_status: self.endpoint_status,
                ..failed
            })
        } else {
            self.endpoint_status = EndpointStatus::Proven;
            Event::Replied(self.reply(ask.purpose))
        }
    }

    /// The fault of the service for a request for one token.
    pub(super) fn probe_fault(&mut self, model_index: u8) -> Option<Failure> {
        self.service_fault(ModelCall {
            purpose: CallPurpose::Reply,
            model_index,
            cap: 1,
            mode: ReplyMode::Whole,
            connection: ConnectionChoice::Fresh,
            attempt: 1,
            fast: false,
            may_wait_for_shared_limit: false,
        })
    }

    /// The fault of the service, whatever the request.
    fn service_fault(&mut self, ask: ModelCall) -> Option<Failure> {
        let wish = self.dice.roll(900);
        let overload = failure(ErrorClass::ServerOverload);
        match self.day {
            ServiceScenario::Flaky if self.dice.roll(5) < 2 => Some(self.any_failure()),
            ServiceScenario::Anything if self.dice.one_in(2) => Some(self.any_failure()),
            ServiceScenario::Overloaded if self.now < self.overload_ends => Some(overload),
            ServiceScenario::Flapping if self.flaps() => Some(overload),
            ServiceScenario::Limited => Some(failure(ErrorClass::RateLimit)),
            ServiceScenario::LimitedWithWishes => {
                Some(failure_with_retry_after(ErrorClass::RateLimit, secs(wish)))
            }
            ServiceScenario::SlowDrip if self.dice.one_in(3) => {
                Some(failure_at_stage(ErrorClass::StreamStalled, FailureStage::Block))
            }
            ServiceScenario::Torn if ask.mode == ReplyMode::Streaming && self.dice.roll(4) < 3 => {
                let reach = self.dice.pick(&[FailureStage::Stream, FailureStage::Block]);
                Some(failure_at_stage(ErrorClass::ConnectionError, reach))
            }
            ServiceScenario::KeysChange if self.dice.one_in(2) => {
                let class = self.dice.pick(&[ErrorClass::InvalidApiKey, ErrorClass::TokenRevoked]);
                Some(failure(class))
            }
            ServiceScenario::KeysExpire if self.now >= self.key_ends => {
                Some(failure(ErrorClass::InvalidApiKey))
            }
            ServiceScenario::Wires if self.dice.roll(4) < 3 => {
                let reaches = [
                    FailureStage::Unsent,
                    FailureStage::StaleConnection,
                    FailureStage::FreshConnection,
                ];
                Some(failure_at_stage(ErrorClass::ConnectionError, self.dice.pick(&reaches)))
            }
            ServiceScenario::OneModelDown if ask.model_index == 0 && self.is_down() => {
                Some(failure(self.down_with))
            }
            ServiceScenario::FastIsShort if ask.fast && self.dice.one_in(2) => {
                Some(self.shortage())
            }
            ServiceScenario::OddRefusals
                if self.endpoint_status == EndpointStatus::Proven && self.dice.one_in(4) =>
            {
                Some(self.odd_refusal())
            }
            ServiceScenario::FirstAttemptsFail if ask.attempt == 1 => {
                let stale = FailureStage::StaleConnection;
                let reset = failure_at_stage(ErrorClass::ConnectionError, stale);
                Some(self.dice.pick(&[overload, reset]))
            }
            ServiceScenario::BothModelsOut if ask.model_index > 0 || self.is_out_at_first() => {
                Some(overload)
            }
            ServiceScenario::Pages if self.now < self.overload_ends => {
                Some(failure(ErrorClass::ServerError))
            }
            ServiceScenario::Flaky
            | ServiceScenario::Anything
            | ServiceScenario::Overloaded
            | ServiceScenario::Flapping
            | ServiceScenario::SlowDrip
            | ServiceScenario::Torn
            | ServiceScenario::Truncating
            | ServiceScenario::Empty
            | ServiceScenario::Pausing
            | ServiceScenario::KeysChange
            | ServiceScenario::KeysExpire
            | ServiceScenario::Wires
            | ServiceScenario::Refilling
            | ServiceScenario::Stuffed
            | ServiceScenario::Misjudged
            | ServiceScenario::NoSummaries
            | ServiceScenario::Poisoned
            | ServiceScenario::TooLarge
            | ServiceScenario::OneModelDown
            | ServiceScenario::FastIsShort
            | ServiceScenario::Demanding
            | ServiceScenario::OddRefusals
            | ServiceScenario::Pages
            | ServiceScenario::Spiralling
            | ServiceScenario::Unfinished
            | ServiceScenario::Contradicted
            | ServiceScenario::Unthinking
            | ServiceScenario::FirstAttemptsFail
            | ServiceScenario::BothModelsOut => None,
        }
    }

    fn odd_refusal(&mut self) -> Failure {
        let classes = [
            ErrorClass::InvalidApiKey,
            ErrorClass::AuthError,
            ErrorClass::InvalidRequest,
            ErrorClass::InvalidModel,
            ErrorClass::Unknown,
        ];
        let class = self.dice.pick(&classes);
        Failure { body: ErrorBody::Foreign, ..failure(class) }
    }

    /// Whether the preferred model is out, for a minute or so.
    fn is_out_at_first(&self) -> bool {
        self.now.as_millis() < self.overload_ends.as_millis() / 1_000
    }

    fn flaps(&self) -> bool {
        (self.now.as_millis() / self.flap).is_multiple_of(2)
    }

    fn is_down(&self) -> bool {
        let ends = self.down_from.after(secs(3_600));
        self.lived.is_zero() && (self.down_from..ends).contains(&self.now)
    }

    fn shortage(&mut self) -> Failure {
        let class = self.dice.pick(&[ErrorClass::RateLimit, ErrorClass::ServerOverload]);
        let wait = [Duration::ZERO, secs(1), secs(19), secs(20), secs(200), secs(2_000)];
        let wait = self.dice.pick(&wait);
        let wish = self
            .dice
            .one_in(2)
            .then_some(RetryAfter { wait, source: RetryAfterSource::RetryAfter });
        let ruling = self.dice.pick(&[None, None, None, Some(RetryHint::Retry)]);
        Failure {
            retry_after: wish,
            retry_hint: ruling,
            fast_denied: self.dice.one_in(12),
            ..failure(class)
        }
    }

    /// The fault of the request: too long, too large, or poisoned.
    fn refusal(&mut self, ask: ModelCall) -> Option<Failure> {
        let size = self.talk.size(ask.purpose);
        let room = if self.strict { ask.cap } else { 0 };
        if u64::from(size) + u64::from(room) > u64::from(self.true_window) {
            let class = self.dice.pick(&[ErrorClass::PromptTooLong, ErrorClass::RequestTooLarge]);
            return Some(failure(class));
        }
        let of_a_summary = matches!(ask.purpose, CallPurpose::Summary(_));
        if self.day == ServiceScenario::Contradicted && self.dice.one_in(6) {
            // The same is not said of a request that was repeated because of it.
            let contradicted = !self.seen.is_unexpected_after_success();
            return Some(Failure { contradicted, ..failure(ErrorClass::PromptTooLong) });
        }
        if self.talk.cache_marks || (self.talk.thinking && !of_a_summary) {
            return Some(failure(ErrorClass::InvalidRequest));
        }
        if of_a_summary && self.day == ServiceScenario::NoSummaries && self.dice.one_in(4) {
            let classes =
                [ErrorClass::InvalidRequest, ErrorClass::PromptTooLong, ErrorClass::ServerError];
            return Some(failure(self.dice.pick(&classes)));
        }
        if self.talk.oversize {
            let classes =
                [ErrorClass::ImageTooLarge, ErrorClass::PdfTooLarge, ErrorClass::RequestTooLarge];
            return Some(failure(self.dice.pick(&classes)));
        }
        if self.talk.poison > 0 {
            let classes = [ErrorClass::InvalidRequest, ErrorClass::ToolUseMismatch];
            let ruling = self.dice.pick(&[None, Some(RetryHint::Stop)]);
            return Some(Failure { retry_hint: ruling, ..failure(self.dice.pick(&classes)) });
        }
        None
    }

    fn reply(&mut self, purpose: CallPurpose) -> ReplyKind {
        let tokens = self.dice.between(0, 1_000);
        let of_a_summary = matches!(purpose, CallPurpose::Summary(_));
        self.talk.summary_size = self.dice.between(800, 4_000);
        if self.day == ServiceScenario::Truncating {
            return ReplyKind::CutShort(self.any_cut());
        } else if self.day == ServiceScenario::Empty {
            return ReplyKind::Empty;
        } else if self.day == ServiceScenario::Pausing {
            return ReplyKind::Paused;
        } else if of_a_summary && self.day == ServiceScenario::NoSummaries && self.dice.roll(3) < 2
        {
            let none = [ReplyKind::Empty, ReplyKind::Refusal, ReplyKind::ToolCalls { tokens }];
            return self.dice.pick(&none);
        } else if of_a_summary {
            return ReplyKind::Answer { tokens };
        }
        if self.day == ServiceScenario::Unfinished && self.dice.one_in(4) {
            return ReplyKind::Incomplete(self.any_lack());
        }
        let answers = if self.day.is_long() { 1 } else { 5 };
        let odd = if matches!(self.day, ServiceScenario::Anything | ServiceScenario::Flaky) {
            5
        } else {
            0
        };
        match self.dice.roll(11 + answers + odd) {
            0..=10 => ReplyKind::ToolCalls { tokens },
            nth if nth < 11 + answers => {
                let kinds = [ReplyKind::Answer { tokens }, ReplyKind::LeftOpen { tokens }];
                kinds[usize::from(self.dice.one_in(4))]
            }
            nth => match nth - 11 - answers {
                0 => ReplyKind::CutShort(self.any_cut()),
                1 => ReplyKind::Empty,
                2 => ReplyKind::Paused,
                3 => ReplyKind::Incomplete(self.any_lack()),
                _ => ReplyKind::Refusal,
            },
        }
    }

    fn any_cut(&mut self) -> CutKind {
        self.dice.pick(&[CutKind::Text, CutKind::ToolCall, CutKind::Thinking])
    }

    fn any_lack(&mut self) -> Incomplete {
        self.dice.pick(&[
            Incomplete::MissingCall,
            Incomplete::CallInText,
            Incomplete::Filtered,
            Incomplete::BrokenOff,
            Incomplete::UnknownReason,
        ])
    }

    pub(super) fn any_failure(&mut self) -> Failure {
        let reaches = [
            FailureStage::Unsent,
            FailureStage::StaleConnection,
            FailureStage::FreshConnection,
            FailureStage::Status,
            FailureStage::Stream,
            FailureStage::Block,
        ];
        let wait = Duration::from_millis(self.dice.roll(1_200_000));
        let source = self.dice.pick(&[RetryAfterSource::RetryAfter, RetryAfterSource::Reset]);
        Failure {
            class: self.dice.pick(&ErrorClass::ALL),
            retry_after: self.dice.one_in(4).then_some(RetryAfter { wait, source }),
            retry_hint: self.dice.pick(&[
                None,
                None,
                None,
                Some(RetryHint::Retry),
                Some(RetryHint::Stop),
            ]),
            stage: self.dice.pick(&reaches),
            mitigations: AvailableMitigations::NONE,
            fast_denied: self.dice.one_in(20),
            body: self.dice.pick(&[
                ErrorBody::None,
                ErrorBody::Api,
                ErrorBody::Foreign,
                ErrorBody::Portal,
            ]),
            endpoint_status: self.endpoint_status,
            contradicted: self.dice.one_in(4),
        }
    }

    /// The results of a round of tools.
    pub(super) fn tool_results(&mut self) -> Event {
        let growth = self.day.growth(self.true_window, &mut self.dice);
        let folds = self.dice.one_in(3);
        self.talk.grow(growth, folds);
        let anything = self.day == ServiceScenario::Anything && self.dice.one_in(4);
        if anything || (self.day == ServiceScenario::Poisoned && self.dice.one_in(2)) {
            self.talk.poison += self.dice.small(3) + 1;
            self.talk.curable = !self.dice.one_in(40);
            self.talk.suspects = if self.talk.curable { 0 } else { self.dice.small(3) };
            self.talk.is_among_suspects = self.dice.one_in(2);
        }
        if anything || (self.day == ServiceScenario::TooLarge && self.dice.one_in(2)) {
            // Sometimes what is too large is nothing that could be taken out.
            let tokens = if self.dice.one_in(40) { 0 } else { 1_000 };
            self.talk.show(tokens, true);
        }
        let delivers = self.limits.structured && self.dice.one_in(2);
        if self.dice.one_in(50) {
            match self.seed % 3 {
                0 => Event::HookStopped,
                1 => Event::Denied,
                _ => Event::Deferred,
            }
        } else if delivers {
            self.dice.pick(&[Event::Delivered, Event::SchemaMismatch])
        } else {
            let pace = match (self.day, self.dice.roll(20)) {
                (ServiceScenario::Spiralling, 0) => LoopStatus::Stuck,
                (ServiceScenario::Spiralling, 1..=4) => LoopStatus::Repeating,
                _fresh => LoopStatus::Fresh,
            };
            Event::ToolsDone(pace)
        }
    }
}
