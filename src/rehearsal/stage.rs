//! Where requests meet the script.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Connection, Request};
use super::play::{Fate, Tempo, play, play_at_accept};
use super::referee::{self, BODY_MAX, LastWord};
use super::render::{self, Circumstances};
use super::scenario::{Answer, ApiError, Http, Scenario, Step};
use super::script::{Recorded, Script};
use super::sse::Spoken;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) scenario: Scenario,
    tempo: Tempo,
    cwd: String,
    /// Part of every id, so that no two servers ever give out the same one.
    name: String,
    start: Instant,
    script: Mutex<Script>,
    /// Told whenever the script has changed.
    pub(super) news: watch::Sender<()>,
}

impl Stage {
    pub(super) fn new(scenario: Scenario, tempo: Tempo, cwd: String) -> Self {
        Self {
            tempo,
            cwd,
            name: uuid::Uuid::new_v4().simple().to_string()[..10].to_owned(),
            start: Instant::now(),
            script: Mutex::new(Script::new(&scenario)),
            news: watch::Sender::new(()),
            scenario,
        }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        // A panic elsewhere leaves nothing half-written that would matter here.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes connections, for ever.
pub(super) async fn accept(listener: TcpListener, stage: Arc<Stage>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let id = {
                    let mut script = stage.script();
                    script.accepted += 1;
                    script.accepted
                };
                stage.news.send_replace(());
                connections.spawn(serve(Connection::new(id, stream), Arc::clone(&stage)));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: Connection, stage: Arc<Stage>) {
    let fault = stage.script().fault_at_accept(&stage.scenario);
    if let Some(fault) = fault {
        return play_at_accept(connection, &fault, stage.tempo).await;
    }
    loop {
        let request = match connection.read_request().await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                let step = Step::new(Answer::Http(invalid(&error.to_string())));
                return drop(send(connection, &step, None, &stage, 0, false).await);
            }
        };
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let fate = match (request.method.as_str(), path.as_str()) {
            ("POST", path) if path.ends_with("/v1/messages") => {
                answer(connection, request, &stage).await
            }
            ("POST", path) if path.ends_with("/v1/messages/count_tokens") => {
                let count = json!({ "input_tokens": request.body.len().div_ceil(4) });
                plain(connection, &request, &stage, count).await
            }
            ("HEAD" | "GET", path) if !path.contains("/v1/") => {
                plain(connection, &request, &stage, json!({ "rehearsal": true })).await
            }
            _ => {
                let step = Step::new(Answer::Http(render::refusal(404, None)));
                send(connection, &step, None, &stage, 0, request.keep_alive).await
            }
        };
        match fate {
            Fate::Open(open) => connection = open,
            Fate::Ended | Fate::Abandoned => return,
        }
    }
}

/// Answers something that is no part of the script.
async fn plain(connection: Connection, request: &Request, stage: &Stage, body: Value) -> Fate {
    let body = body.to_string();
    let headless = request.method == "HEAD";
    let step = Step::new(Answer::Http(Http {
        status: 200,
        content_type: "application/json".to_owned(),
        content_length: Some(body.len()),
        body: if headless { String::new() } else { body },
    }));
    send(connection, &step, None, stage, 0, request.keep_alive).await
}

/// Answers a request for a reply: what the referee, the rules or the script say.
async fn answer(connection: Connection, request: Request, stage: &Stage) -> Fate {
    let (number, step, spoken) = decide(&connection, &request, stage);
    let streaming = spoken.as_ref().is_some_and(|(_, streaming)| *streaming);
    let spoken = spoken.as_ref().map(|(spoken, _)| (spoken, streaming));
    let fate = send(connection, &step, spoken, stage, number, request.keep_alive).await;
    if matches!(fate, Fate::Abandoned) {
        if let Some(recorded) = stage.script().recorded.get_mut(number - 1) {
            recorded.aborted_by_client = true;
        }
        stage.news.send_replace(());
    }
    fate
}

async fn send(
    connection: Connection,
    step: &Step,
    spoken: Option<(&Spoken, bool)>,
    stage: &Stage,
    number: usize,
    keep_alive: bool,
) -> Fate {
    let request_id = format!("req_{}_{number}", stage.name);
    let take = render::take(
        step,
        &Circumstances {
            request_id: &request_id,
            spoken: spoken.map(|(spoken, _)| spoken),
            streaming: spoken.is_some_and(|(_, streaming)| streaming),
            keep_alive,
        },
    );
    play(connection, &take, step, stage.tempo).await
}

type Decision = (usize, Step, Option<(Spoken, bool)>);

/// Records a request and decides who answers it. The number counts from 1.
fn decide(connection: &Connection, request: &Request, stage: &Stage) -> Decision {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let mut script = stage.script();
    let number = script.recorded.len() + 1;
    script.recorded.push(Recorded {
        at: stage.start.elapsed(),
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: body.clone(),
        raw: request.body.clone().into(),
        connection_id: connection.id,
        step: None,
        aborted_by_client: false,
    });
    let verdict = match objection(&mut script, &stage.scenario, request, &body, number) {
        Some(http) => Err(http),
        None => script.next(&stage.scenario, &body, &request.body).ok_or_else(|| {
            let message = format!("request {number} came after the end of the script");
            script.violations.push(message.clone());
            let kind = "api_error".to_owned();
            render::refusal(500, Some(&ApiError { kind, message, code: None }))
        }),
    };
    let step = match verdict {
        Ok(at) => {
            script.recorded[number - 1].step = Some(at);
            stage.scenario.steps[at].clone()
        }
        Err(http) => Step {
            headers: vec![("x-should-retry".to_owned(), "false".to_owned())],
            ..Step::new(Answer::Http(http))
        },
    };
    match &step.answer {
        Answer::Http(http) if http.status == 400 && !invites_retry(&step) => {
            script.note_refusal(&body);
        }
        Answer::Http(_) | Answer::Reply(_) | Answer::Raw(_) => script.forget_refusal(),
    }
    let streaming = body["stream"].as_bool().unwrap_or(false);
    let step = if streaming { step } else { render::unstreamed(step) };
    let spoken = match &step.answer {
        Answer::Reply(reply) => {
            let asked = script.count(&body, &request.body);
            let model = body["model"].as_str().unwrap_or_default();
            let names = format!("{}_{number}", stage.name);
            let spoken = Spoken::new(reply, &names, model, &stage.cwd, asked);
            script.last_word = match spoken.stop_reason.as_str() {
                "pause_turn" => LastWord::Anyone,
                _ => LastWord::User,
            };
            Some((spoken, streaming))
        }
        Answer::Http(_) | Answer::Raw(_) => None,
    };
    drop(script);
    stage.news.send_replace(());
    (number, step, spoken)
}

fn invites_retry(step: &Step) -> bool {
    step.headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("x-should-retry") && value == "true")
}

/// Why a request does not even reach the script.
fn objection(
    script: &mut Script,
    scenario: &Scenario,
    request: &Request,
    body: &Value,
    number: usize,
) -> Option<Http> {
    let rules = &scenario.rules;
    if let Some(key) = &rules.require_key
        && !referee::bears(request, key)
    {
        return Some(render::refusal(401, None));
    }
    let mut faults = referee::judge(request, body, script.last_word);
    if script.was_refused(body) {
        faults.push("the same request was refused with a 400 just before".to_owned());
    }
    if let Some(first) = faults.first() {
        let refusal =
            if request.body.len() > BODY_MAX { render::refusal(413, None) } else { invalid(first) };
        script.violations.extend(faults.iter().map(|fault| format!("request {number}: {fault}")));
        return Some(refusal);
    }
    referee::exceeds(rules, request, body).map(|message| invalid(&message))
}

fn invalid(message: &str) -> Http {
    let kind = "invalid_request_error".to_owned();
    render::refusal(400, Some(&ApiError { kind, message: message.to_owned(), code: None }))
}
