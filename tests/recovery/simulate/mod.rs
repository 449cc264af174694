//! Hostile services, a virtual clock, and a seed: whole runs, thousands of them.
//!
//! `SEEDS=1000000` runs more; `SEED=17` runs one.

mod conversation;
mod environment;
mod fleet;
mod fleet_promises;
mod invariants;
mod many_runs;
mod paced;
mod records;
mod refusals;
mod scenarios;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast_core::recovery::{Moment, StopReason};

use environment::Simulation;
use scenarios::{DAYS, ServiceScenario};

/// Draws everything from one seed, so that a failure is replayed by its number.
struct RandomSource {
    state: u64,
    /// Says what comes before that: two bytes for each roll, the last one first.
    tape: Vec<u8>,
}

impl RandomSource {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, tape: Vec::new() }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        if let (Some(high), Some(low)) = (self.tape.pop(), self.tape.pop()) {
            // Spread over all sides, however many.
            return (u64::from(u16::from_be_bytes([high, low])) * sides) >> 16;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let sides = u64::try_from(choices.len()).expect("a length fits");
        choices[usize::try_from(self.roll(sides)).expect("an index fits")]
    }

    fn small(&mut self, sides: u8) -> u8 {
        u8::try_from(self.roll(u64::from(sides))).expect("below its sides")
    }

    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + u32::try_from(self.roll(u64::from(most - least) + 1)).expect("a size fits")
    }

    fn secs(&mut self, sides: u64) -> Duration {
        Duration::from_secs(self.roll(sides))
    }
}

/// Simulates one run in which `tape` decides what happens, until the tape ends.
pub(super) fn simulate_run(tape: &[u8]) {
    let (mut dice, tape) = (RandomSource::new(7), tape.get(..4_096).unwrap_or(tape));
    dice.tape = tape.iter().rev().copied().collect();
    Simulation::with(7, dice).play();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The results of many runs.
#[derive(Default)]
struct Tally {
    ends: BTreeMap<(ServiceScenario, &'static str), u32>,
    plans: BTreeSet<&'static str>,
    simulated: Duration,
    requests: u64,
}

impl Tally {
    fn add(&mut self, world: &Simulation, reason: StopReason) {
        self.simulated += world.lived + Moment::default().until(world.now);
        self.requests += world.seen.requests;
        self.plans.extend(&world.seen.plans);
        *self.ends.entry((world.day, reason.name())).or_default() += 1;
    }

    fn show(&self) -> String {
        let days = self.simulated.as_secs() / 86_400;
        let ends = self.ends.iter();
        let lines = ends.map(|((day, reason), times)| format!("\n{times:>6} {day:?}: {reason}"));
        format!("{} requests in {days} simulated days", self.requests) + &lines.collect::<String>()
    }

    fn on(&self, day: ServiceScenario, reason: &'static str) -> u32 {
        self.ends.get(&(day, reason)).copied().unwrap_or_default()
    }

    /// Whether the days were as different as they are meant to be.
    fn check_scenario_variety(&self) {
        for reason in ["completed", "max_turns", "max_budget_usd", "deadline", "model_error"] {
            let days = self.ends.keys().filter(|(_, end)| *end == reason).count();
            assert!(days > 3, "hardly any run ends as {reason}: the days are too alike");
        }
        let rare = [
            "aborted_streaming",
            "aborted_tools",
            "blocking_limit",
            "denied",
            "empty_response",
            "hook_stopped",
            "image_error",
            "max_output_tokens",
            "prompt_too_long",
            "refusal",
            "requirement_failed",
            "stalled",
            "structured_output_retry_exhausted",
        ];
        for reason in rare {
            let reached = self.ends.keys().any(|(_, end)| *end == reason);
            assert!(reached, "no run ends as {reason}");
        }
        let never: Vec<_> = PLANS.iter().filter(|&plan| !self.plans.contains(plan)).collect();
        assert!(never.is_empty(), "no run needed {never:?}");
    }

    /// Whether recovery helps: these scenarios are recoverable, and most runs succeed.
    fn check_success_rate(&self) {
        let lost = [
            (ServiceScenario::Refilling, "prompt_too_long"),
            (ServiceScenario::Misjudged, "prompt_too_long"),
            (ServiceScenario::Poisoned, "model_error"),
            (ServiceScenario::TooLarge, "image_error"),
            (ServiceScenario::OneModelDown, "model_error"),
            (ServiceScenario::Flapping, "model_error"),
            (ServiceScenario::KeysExpire, "model_error"),
            (ServiceScenario::FastIsShort, "model_error"),
            (ServiceScenario::OddRefusals, "model_error"),
            (ServiceScenario::Unfinished, "model_error"),
            (ServiceScenario::Contradicted, "prompt_too_long"),
            (ServiceScenario::Unthinking, "model_error"),
            (ServiceScenario::Torn, "model_error"),
            (ServiceScenario::FirstAttemptsFail, "model_error"),
            (ServiceScenario::BothModelsOut, "model_error"),
        ];
        for (day, reason) in lost {
            let all: u32 =
                self.ends.iter().filter(|((on, _), _)| *on == day).map(|(_, times)| times).sum();
            let saved = all - self.on(day, reason);
            assert!(saved * 10 > all * 7, "{day:?}: {} of {all} end as {reason}", all - saved);
        }
    }
}

/// Every recovery there is, by its name.
const PLANS: [&str; 33] = [
    "retry_at_once",
    "retry",
    "odd_refusal_retry",
    "wait_for_capacity",
    "model_fallback",
    "refresh_credentials",
    "max_output_tokens_escalate",
    "max_output_tokens_recovery",
    "retry_empty_reply",
    "retry_incomplete_reply",
    "request_completion",
    "resume_paused_turn",
    "budget_continuation",
    "auto_compact",
    "compact_skipped",
    "collapse_drain_retry",
    "reactive_compact_retry",
    "compact_trim_retry",
    "media_strip_retry",
    "block_repair_retry",
    "thinking_off_retry",
    "cache_marks_off_retry",
    "reminder",
    "overflow_retry",
    "fast_mode_cool_down",
    "fast_mode_off",
    "fallback_return",
    "preferred_model_retry",
    "structured_output_retry",
    "requirement_retry",
    "capacity_probe",
    "early_return",
    "stop",
];

#[test]
fn no_simulated_service_makes_a_run_hang_rush_go_silent_or_overspend() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(16_000),
    };
    let mut stats = Tally::default();
    for seed in seeds {
        let mut world = Simulation::new(seed);
        let (reason, trace) = world.play();
        stats.add(&world, reason);
        if seed % 16 == 0 {
            assert_eq!(Simulation::new(seed).play(), (reason, trace), "seed {seed} is not itself");
        }
    }
    eprintln!("{}", stats.show());
    if number("SEED").is_none() {
        assert_eq!(DAYS.len(), 31, "a day is drawn only if it is listed");
        stats.check_scenario_variety();
        stats.check_success_rate();
    }
}
