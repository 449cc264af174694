//! Renders the files of a batch for other engines: Slurm, Kubernetes, and CI systems with a matrix.

mod kubernetes;
mod matrix;
mod slurm;
mod yaml;

pub use kubernetes::{ClusterOptions, job_manifest};
pub use matrix::{MATRIX_MAX, matrix};
pub use slurm::array_script;
pub use yaml::render_yaml;

/// The reason why a batch cannot be rendered for an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error(
        "the plan has {bytes} bytes, and a ConfigMap holds {}; use fewer or shorter prompts, or \
         several batches",
        kubernetes::CONFIG_MAP_MAX
    )]
    PlanTooLarge { bytes: usize },
    #[error(
        "a matrix has {MATRIX_MAX} jobs at most, and {count} tasks are open; use several batches"
    )]
    MatrixTooLarge { count: usize },
}
