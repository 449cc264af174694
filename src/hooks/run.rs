//! Runs the hooks of an event side by side, each within its time.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::{Job, Running, Supervisor};
use crate::secrets::{KnownSecrets, Mask};

use super::answer::{HookEnd, Mishap, Performance, Say, judge};
use super::config::{Handler, HookCommand};
use super::crash::CrashLog;
use super::event::{HookEvent, Objection};
use super::verdict::Verdict;

/// What is read of each stream of a hook, in bytes. The rest is thrown away.
const HEARD_MAX: usize = 1 << 20;

const CHUNK: usize = 16 << 10;

/// How long output is still read when the hook itself is over but others hold its pipes.
const DRAIN: Duration = Duration::from_millis(200);

/// How long a hook has to end by itself once it is asked to.
const GRACE: Duration = Duration::from_millis(500);

/// What all hooks of a run are told, and what they are run with.
#[derive(Clone, Debug)]
pub struct HookScene {
    pub session_id: String,
    /// The session's journal, whether or not it is kept.
    pub transcript: PathBuf,
    pub cwd: PathBuf,
    pub permission_mode: String,
    /// All variables of a hook.
    pub environment: Vec<(OsString, OsString)>,
    pub log: CrashLog,
    /// What must not stand in it.
    pub secrets: KnownSecrets,
    /// Runs scripts.
    pub shell: PathBuf,
    /// Starts hooks, and sees to it that nothing of them is left.
    pub supervisor: Supervisor,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Occasion {
    pub event: HookEvent,
    /// What matchers are compared with: the tool, the source, the reason; empty if nothing is.
    pub subject: String,
    /// What hooks of this event are told beside the common fields.
    pub fields: Map<String, Value>,
}

/// The hooks of a run.
#[derive(Clone, Debug)]
pub struct Hooks {
    handlers: Vec<Handler>,
    scene: HookScene,
    past_failures: usize,
}

impl Hooks {
    /// Looks into the crash log.
    pub fn new(handlers: Vec<Handler>, scene: HookScene) -> Self {
        let past_failures = scene.log.count();
        Self { handlers, scene, past_failures }
    }

    /// How many failures the crash log told of when this began.
    pub fn past_failures(&self) -> usize {
        self.past_failures
    }

    /// Whether any hook is there for an event at all.
    pub fn listens_to(&self, event: HookEvent) -> bool {
        self.handlers.iter().any(|handler| handler.event == event)
    }

    /// What the crash log tells of.
    pub fn log(&self) -> &CrashLog {
        &self.scene.log
    }

    /// Tells the hooks what happened, and what they want. `covers` says whether a permission rule
    /// covers the call that it is about. Never fails: a hook that does is as good as none, unless
    /// it is a guard.
    pub async fn tell(
        &self,
        occasion: &Occasion,
        covers: &(dyn Fn(&str) -> bool + Sync),
        cancel: &CancellationToken,
    ) -> Verdict {
        let is_for_it = |handler: &&Handler| {
            handler.event == occasion.event
                && handler.matcher.matches(&occasion.subject)
                && handler.condition.as_deref().is_none_or(covers)
        };
        let handlers: Vec<&Handler> = self.handlers.iter().filter(is_for_it).collect();
        if handlers.is_empty() {
            return Verdict::default();
        }
        let input = self.input(occasion);
        let performances = self.perform(&handlers, &input, cancel).await;
        if cancel.is_cancelled() {
            // Nothing was wrong with them, and nobody listens any more.
            return Verdict::default();
        }
        let ran = u32::try_from(handlers.len()).unwrap_or(u32::MAX);
        let mut verdict = Verdict { ran, ..Verdict::default() };
        for (handler, performance) in handlers.into_iter().zip(performances) {
            // One that nobody waited for has no say.
            let Some(performance) = performance else { continue };
            match judge(occasion.event, &performance) {
                Ok(say) => verdict.hear(say),
                Err(mishap) => self.mind(handler, mishap, &mut verdict),
            }
        }
        verdict
    }

    fn mind(&self, handler: &Handler, mishap: Mishap, verdict: &mut Verdict) {
        // Without a log the result still tells of it.
        let mask = Mask::new(self.scene.secrets.clone());
        let _ = self.scene.log.add(handler, &mishap, &self.scene.session_id, &mask);
        if handler.fail_closed && handler.event.objection() == Objection::Prevents {
            let why = format!(
                "the guard `{}` failed ({}), and what it guards is forbidden then",
                handler.command.line(),
                mishap.detail
            );
            verdict.hear(Say { objection: Some(why), ..Say::default() });
        }
        verdict.mishaps.push((handler.command.line(), mishap));
    }

    /// Runs them side by side; in the order of the settings, what they did.
    async fn perform(
        &self,
        handlers: &[&Handler],
        input: &[u8],
        cancel: &CancellationToken,
    ) -> Vec<Option<Performance>> {
        let budget = budget(handlers);
        let mut performances: Vec<Option<Performance>> = vec![None; handlers.len()];
        let mut tasks = JoinSet::new();
        for (index, handler) in handlers.iter().enumerate() {
            let (job, limit) = (self.job(handler), handler.timeout);
            let (input, stop) = (input.to_vec(), cancel.child_token());
            let supervisor = self.scene.supervisor.clone();
            if handler.detached {
                tokio::spawn(perform(supervisor, job, input, limit, stop));
                continue;
            }
            // Should the budget end first, this is what is said of it.
            let late = HookEnd::TimedOut;
            performances[index] =
                Some(Performance { end: late, out: String::new(), err: String::new() });
            tasks.spawn(async move { (index, perform(supervisor, job, input, limit, stop).await) });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                if let Ok((index, performance)) = done {
                    performances[index] = Some(performance);
                }
            }
        };
        // Those still running are ended when they are dropped.
        let _ = tokio::time::timeout(budget, all).await;
        performances
    }

    fn job(&self, handler: &Handler) -> Job {
        let (program, arguments) = match &handler.command {
            HookCommand::Script(script) => {
                (self.scene.shell.clone(), vec!["-c".into(), script.into()])
            }
            HookCommand::Program { path, arguments } => {
                let path = self.placed(&path.to_string_lossy());
                (path.into(), arguments.iter().map(|one| self.placed(one)).collect())
            }
        };
        Job {
            program,
            arguments,
            cwd: self.scene.cwd.clone(),
            environment: self.scene.environment.clone(),
            input: true,
            // It is the user's own program, and may do what the user may.
            fence: None,
        }
    }

    /// A word of a command line that no shell sees.
    fn placed(&self, word: &str) -> OsString {
        let project = self.scene.cwd.to_string_lossy();
        word.replace("${CLAUDE_PROJECT_DIR}", &project).into()
    }

    /// What a hook reads from its standard input.
    fn input(&self, occasion: &Occasion) -> Vec<u8> {
        let scene = &self.scene;
        let mut input = json!({
            "session_id": scene.session_id,
            "transcript_path": scene.transcript,
            "cwd": scene.cwd,
            "hook_event_name": occasion.event.name(),
            "permission_mode": scene.permission_mode,
        });
        if let Some(input) = input.as_object_mut() {
            input.extend(occasion.fields.clone());
        }
        format!("{input}\n").into_bytes()
    }
}

/// How long the hooks of an event may take together: twice the longest of their limits (SPEC 14).
fn budget(handlers: &[&Handler]) -> Duration {
    handlers.iter().map(|handler| handler.timeout).max().unwrap_or_default() * 2
}

/// Runs one hook to its end.
async fn perform(
    supervisor: Supervisor,
    job: Job,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> Performance {
    let running = match supervisor.start(&job).await {
        Ok(running) => running,
        Err(error) => {
            let end = HookEnd::Failed(format!("cannot be started: {error}"));
            return Performance { end, out: String::new(), err: String::new() };
        }
    };
    follow(running, input, limit, cancel).await
}

/// Sees a hook through: tells it what happened, hears what it says, minds its time.
async fn follow(
    mut running: Running,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> Performance {
    let stdin = running.stdin.take().and_then(|pipe| Sender::from_owned_fd(pipe.into()).ok());
    let out = running.stdout.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let err = running.stderr.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let (told, said) = (Heard::default(), Heard::default());
    let mut streams = JoinSet::new();
    streams.spawn(async move {
        if let Some(mut stdin) = stdin {
            // One that does not read what it is told has ended, or does not care.
            let _ = stdin.write_all(&input).await;
        }
    });
    streams.spawn(told.clone().listen(out));
    streams.spawn(said.clone().listen(err));
    let mut exit = std::pin::pin!(running.exit());
    let exited = tokio::select! {
        biased;
        status = &mut exit => Some(ended(status)),
        () = tokio::time::sleep(limit) => None,
        () = cancel.cancelled() => None,
    };
    if exited.is_none() {
        running.terminate();
        let _ = tokio::time::timeout(GRACE, exit).await;
    }
    // What it left behind would hold its pipes open.
    running.sweep().await;
    let drained = async { while streams.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, drained).await;
    Performance { end: exited.unwrap_or(HookEnd::TimedOut), out: told.text(), err: said.text() }
}

/// What was read of a stream so far.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    /// Reads to the end, and keeps what may be of use.
    async fn listen(self, pipe: Option<Receiver>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; CHUNK];
        // What cannot be read has nothing more to say.
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = HEARD_MAX.saturating_sub(heard.len()).min(count);
            heard.extend_from_slice(&chunk[..room]);
        }
    }

    fn text(&self) -> String {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard).into_owned()
    }
}

fn ended(status: Option<ExitStatus>) -> HookEnd {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => HookEnd::Exited(code),
        Some((None, Some(signal))) => HookEnd::Killed { signal },
        Some((None, None)) | None => HookEnd::Failed("its exit code is unknown".to_owned()),
    }
}
