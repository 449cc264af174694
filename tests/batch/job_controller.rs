//! A model of the Job controller of Kubernetes, as far as an Indexed Job depends on it. It starts
//! the container's command as a process; paths of volumes lead to folders of the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Child;

use super::fixture::BatchFixture;
use crate::support::with_time_limit;

/// Stands for `terminationGracePeriodSeconds`: a run ends within four seconds.
const GRACE: Duration = Duration::from_secs(6);

/// A disruption of the first pod of an index from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disruption {
    /// The pod is evicted: SIGTERM, the grace period, SIGKILL.
    Eviction,
    /// The same for a pod that does not react.
    EvictionOfStopped,
    /// The node is lost: the pod is gone without a signal that it could handle.
    NodeLoss,
}

/// The outcome of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexEnd {
    Succeeded,
    Failed,
}

/// The decision of the pod failure policy about a failed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyDecision {
    Ignore,
    FailIndex,
    Count,
}

pub(super) struct JobController<'a> {
    fixture: &'a BatchFixture,
    job: Value,
    volumes: BTreeMap<String, PathBuf>,
    /// The number of pods started for each index.
    pub(super) pods: BTreeMap<usize, u32>,
}

impl<'a> JobController<'a> {
    /// Applies a manifest.
    pub(super) fn apply(manifest: &str, fixture: &'a BatchFixture) -> Self {
        let documents: Vec<Value> = manifest
            .split("---\n")
            .map(|text| serde_saphyr::from_str(text).expect("it is YAML"))
            .collect();
        let of_kind = |kind: &str| {
            let found = documents.iter().find(|document| document["kind"] == kind);
            found.unwrap_or_else(|| panic!("the manifest has a {kind}")).clone()
        };
        let (job, map) = (of_kind("Job"), of_kind("ConfigMap"));
        let spec = &job["spec"]["template"]["spec"];
        let mut volumes = BTreeMap::new();
        for volume in spec["volumes"].as_array().expect("a list") {
            let name = volume["name"].as_str().expect("a name");
            let folder = fixture.path().join(format!("volume-{name}"));
            fs::create_dir_all(&folder).expect("a new folder");
            if volume["configMap"]["name"] == map["metadata"]["name"] {
                for (file, text) in map["data"].as_object().expect("a map") {
                    fs::write(folder.join(file), text.as_str().expect("a text")).expect("ours");
                }
            }
            let mounts = spec["containers"][0]["volumeMounts"].as_array().expect("a list");
            let mount = mounts.iter().find(|mount| mount["name"] == name).expect("it is mounted");
            volumes.insert(mount["mountPath"].as_str().expect("a path").to_owned(), folder);
        }
        Self { fixture, job, volumes, pods: BTreeMap::new() }
    }

    pub(super) fn volume(&self, path: &str) -> PathBuf {
        self.volumes[path].clone()
    }

    fn in_volumes(&self, text: &str) -> String {
        let found = self.volumes.iter().find_map(|(mount, folder)| {
            let rest = text.strip_prefix(mount.as_str())?;
            Some(format!("{}{rest}", folder.display()))
        });
        found.unwrap_or_else(|| text.to_owned())
    }

    /// Starts a pod for an index.
    pub(super) fn start_pod(&mut self, index: usize) -> Child {
        *self.pods.entry(index).or_default() += 1;
        let container = &self.job["spec"]["template"]["spec"]["containers"][0];
        let words = container["command"].as_array().expect("a list").iter();
        let words: Vec<String> =
            words.map(|word| self.in_volumes(word.as_str().expect("a text"))).collect();
        assert_eq!(words[0], "outlast");
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let mut command = self.fixture.outlast(&args);
        for variable in container["env"].as_array().expect("a list") {
            let text = |key: &str| variable[key].as_str().expect("a text");
            command.env(text("name"), self.in_volumes(text("value")));
        }
        command.env("JOB_COMPLETION_INDEX", index.to_string());
        command.spawn().expect("it starts")
    }

    /// Runs an index to its end, with a disruption of its first pod after `moment`.
    pub(super) async fn run_index(
        &mut self,
        index: usize,
        disruption: Option<(Disruption, impl Future<Output = ()>)>,
    ) -> IndexEnd {
        let limit = self.job["spec"]["backoffLimitPerIndex"].as_u64().expect("a number");
        let mut failures = 0;
        let mut disruption = disruption;
        loop {
            let mut pod = self.start_pod(index);
            let (code, is_disrupted) = match disruption.take() {
                Some((disruption, moment)) => {
                    with_time_limit("the moment of the disruption", moment).await;
                    (disrupt(&mut pod, disruption).await, true)
                }
                None => (exit_code(&mut pod).await, false),
            };
            if code == 0 {
                return IndexEnd::Succeeded;
            }
            // podReplacementPolicy Failed: the old pod has ended.
            match self.decide(code, is_disrupted) {
                PolicyDecision::Ignore => {}
                PolicyDecision::FailIndex => return IndexEnd::Failed,
                PolicyDecision::Count => {
                    failures += 1;
                    if failures > limit {
                        return IndexEnd::Failed;
                    }
                }
            }
        }
    }

    /// The first rule of the policy that applies.
    fn decide(&self, code: i32, is_disrupted: bool) -> PolicyDecision {
        let rules = self.job["spec"]["podFailurePolicy"]["rules"].as_array().expect("a list");
        let applies = |rule: &&Value| {
            let conditions = rule["onPodConditions"].as_array().into_iter().flatten();
            let mut types = conditions.map(|condition| condition["type"].clone());
            let codes = rule["onExitCodes"]["values"].as_array().into_iter().flatten();
            let mut codes = codes.filter_map(Value::as_i64);
            assert_ne!(rule["onExitCodes"]["operator"], "NotIn", "the model has only In");
            is_disrupted && types.any(|kind| kind == "DisruptionTarget")
                || codes.any(|value| value == i64::from(code))
        };
        match rules.iter().find(applies).map(|rule| rule["action"].as_str().unwrap_or_default()) {
            Some("Ignore") => PolicyDecision::Ignore,
            Some("FailIndex") => PolicyDecision::FailIndex,
            Some("Count") | None => PolicyDecision::Count,
            Some(other) => panic!("the model has no action {other}"),
        }
    }
}

async fn exit_code(pod: &mut Child) -> i32 {
    let status = with_time_limit("the end of the pod", pod.wait()).await.expect("it ends");
    // As a container runtime reports a signal.
    status.code().unwrap_or(137)
}

fn signal(pod: &Child, signal: Signal) {
    let pid = pod.id().and_then(|id| i32::try_from(id).ok()).expect("it was not waited for");
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

async fn disrupt(pod: &mut Child, disruption: Disruption) -> i32 {
    match disruption {
        Disruption::NodeLoss => signal(pod, Signal::SIGKILL),
        Disruption::Eviction => signal(pod, Signal::SIGTERM),
        Disruption::EvictionOfStopped => {
            signal(pod, Signal::SIGSTOP);
            signal(pod, Signal::SIGTERM);
        }
    }
    if let Ok(status) = tokio::time::timeout(GRACE, pod.wait()).await {
        return status.expect("it ends").code().unwrap_or(137);
    }
    signal(pod, Signal::SIGKILL);
    exit_code(pod).await
}
