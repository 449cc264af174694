//! The manifest for Kubernetes: a `ConfigMap` with the plan, a volume, and an Indexed Job.

use serde_json::{Value, json};

use crate::batch::plan::BatchPlan;
use crate::batch::task_state::is_final_failure;
use crate::types::exit_code;

use super::RenderError;

/// Maximum size of the plan in a `ConfigMap`, in bytes: the limit of 1 MiB, less some for metadata.
pub(super) const CONFIG_MAP_MAX: usize = 1_000_000;

/// The name of the container, which the policy on exit codes refers to.
const CONTAINER: &str = "outlast";

/// Mount points of the plan and of the volume in the container.
const PLAN_FOLDER: &str = "/plan";
const DATA_FOLDER: &str = "/data";

/// Time between SIGTERM and SIGKILL of a pod, in seconds. A run ends within four seconds.
const GRACE_SECONDS: u32 = 60;

/// Requested size of a new volume.
const VOLUME_SIZE: &str = "10Gi";

/// Options of the cluster and of the Job.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub image: String,
    /// An existing volume claim. `None`: one is created with the name of the batch.
    pub claim: Option<String>,
    /// The Secret whose entries become the workers' environment variables, such as
    /// `ANTHROPIC_API_KEY`.
    pub secret: String,
    pub program: String,
    pub jobs: Option<u32>,
    pub attempts: u32,
    pub max_seconds: Option<u64>,
}

/// Renders the documents of the manifest.
///
/// # Errors
/// The plan does not fit into a `ConfigMap`.
pub fn job_manifest(plan: &BatchPlan, options: &ClusterOptions) -> Result<Vec<Value>, RenderError> {
    let text = serde_json::to_string(plan).expect("a plan is plain data");
    if text.len() > CONFIG_MAP_MAX {
        return Err(RenderError::PlanTooLarge { bytes: text.len() });
    }
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(plan),
        "data": { "plan.json": text },
    });
    let claim = options.claim.is_none().then(|| volume_claim(plan));
    Ok([config_map].into_iter().chain(claim).chain([job(plan, options)]).collect())
}

fn metadata(plan: &BatchPlan) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "outlast",
        "app.kubernetes.io/instance": plan.batch,
    });
    json!({ "name": plan.batch, "labels": labels })
}

fn volume_claim(plan: &BatchPlan) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(plan),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": { "requests": { "storage": VOLUME_SIZE } },
        },
    })
}

fn job(plan: &BatchPlan, options: &ClusterOptions) -> Value {
    let count = plan.tasks.len();
    let jobs = options.jobs.map_or(count, |jobs| usize::try_from(jobs).unwrap_or(count).min(count));
    let codes = exit_code::MEANINGS.map(|(code, _)| code).into_iter();
    let mut final_codes: Vec<u8> = codes.filter(|code| is_final_failure(*code)).collect();
    // Kubernetes takes them in ascending order only.
    final_codes.sort_unstable();
    let mut spec = json!({
        "completions": count,
        "parallelism": jobs,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": options.attempts.saturating_sub(1),
        // A replacement pod starts only after the old one has ended.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": { "rules": [
            // Eviction, preemption, drained nodes: not the task's failure.
            {
                "action": "Ignore",
                "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
            },
            {
                "action": "FailIndex",
                "onExitCodes": {
                    "containerName": CONTAINER, "operator": "In", "values": final_codes,
                },
            },
        ] },
    });
    if let Some(seconds) = options.max_seconds {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    spec["template"] = template(plan, options);
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(plan), "spec": spec })
}

fn template(plan: &BatchPlan, options: &ClusterOptions) -> Value {
    let place = format!("{DATA_FOLDER}/batch/{}", plan.batch);
    let command = [
        options.program.as_str(),
        "batch",
        "worker",
        &format!("{PLAN_FOLDER}/plan.json"),
        "--dir",
        &place,
    ];
    let container = json!({
        "name": CONTAINER,
        "image": options.image,
        // No shell, so that outlast itself receives the signals.
        "command": command,
        "env": [{ "name": "OUTLAST_CONFIG_DIR", "value": format!("{DATA_FOLDER}/config") }],
        "envFrom": [{ "secretRef": { "name": options.secret } }],
        "volumeMounts": [
            { "name": "plan", "mountPath": PLAN_FOLDER, "readOnly": true },
            { "name": "data", "mountPath": DATA_FOLDER },
        ],
    });
    json!({
        "metadata": { "labels": metadata(plan)["labels"] },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [container],
            "volumes": [
                { "name": "plan", "configMap": { "name": plan.batch } },
                { "name": "data", "persistentVolumeClaim": {
                    "claimName": options.claim.as_ref().unwrap_or(&plan.batch),
                } },
            ],
        },
    })
}
