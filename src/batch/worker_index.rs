//! Determines the task of a worker from an environment variable of the engine.

use std::ffi::OsStr;

use crate::config::environment::Variables;

/// Variables of engines, by priority, with the number that each gives to the first task.
const VARIABLES: [(&str, usize); 6] = [
    ("JOB_COMPLETION_INDEX", 0),
    ("SLURM_ARRAY_TASK_ID", 0),
    ("BUILDKITE_PARALLEL_JOB", 0),
    ("CIRCLE_NODE_INDEX", 0),
    ("CI_NODE_INDEX", 1),
    ("PARALLEL_SEQ", 1),
];

/// The reason why a worker's task cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("no variable says which task to run ({}); give --index N", names())]
    Missing,
    #[error("{variable}={value:?} is not the number of a task; numbers begin with {first}")]
    Invalid { variable: &'static str, value: String, first: usize },
    #[error("there is no task {index}: the batch has {count}, from 0 to {}", count.saturating_sub(1))]
    OutOfRange { index: usize, count: usize },
}

fn names() -> String {
    VARIABLES.map(|(name, _)| name).join(", ")
}

/// Returns the index of the task: the given one, or that in a variable of the engine.
///
/// # Errors
/// No variable is set, or there is no task with this index.
pub fn worker_index(
    given: Option<usize>,
    variables: &Variables,
    count: usize,
) -> Result<usize, IndexError> {
    let index = match given {
        Some(index) => index,
        None => of_engine(variables)?,
    };
    if index < count { Ok(index) } else { Err(IndexError::OutOfRange { index, count }) }
}

fn of_engine(variables: &Variables) -> Result<usize, IndexError> {
    let set = VARIABLES.into_iter().find_map(|(name, first)| {
        let value = variables.get(OsStr::new(name)).filter(|value| !value.is_empty())?;
        Some((name, first, value.to_string_lossy().into_owned()))
    });
    let (variable, first, value) = set.ok_or(IndexError::Missing)?;
    let number = value.trim().parse::<usize>().ok();
    let index = number.and_then(|number| number.checked_sub(first));
    index.ok_or(IndexError::Invalid { variable, value, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> Variables {
        set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn each_engine_has_its_variable_and_its_first_number() {
        for (name, value, index) in [
            ("JOB_COMPLETION_INDEX", "3", 3),
            ("SLURM_ARRAY_TASK_ID", "0", 0),
            ("BUILDKITE_PARALLEL_JOB", "2", 2),
            ("CIRCLE_NODE_INDEX", "2", 2),
            ("CI_NODE_INDEX", "1", 0),
            ("PARALLEL_SEQ", "4", 3),
        ] {
            let found = worker_index(None, &variables(&[(name, value)]), 4);
            assert_eq!(found, Ok(index), "{name}");
        }
        let both = variables(&[("PARALLEL_SEQ", "1"), ("JOB_COMPLETION_INDEX", "2")]);
        assert_eq!(worker_index(None, &both, 4), Ok(2));
        assert_eq!(worker_index(Some(1), &both, 4), Ok(1), "a flag outranks all of them");
    }

    #[test]
    fn a_number_that_is_none_is_an_error() {
        assert_eq!(
            worker_index(None, &variables(&[("CI_NODE_INDEX", "")]), 4),
            Err(IndexError::Missing)
        );
        for (name, value) in
            [("CI_NODE_INDEX", "0"), ("SLURM_ARRAY_TASK_ID", "-1"), ("PARALLEL_SEQ", "x")]
        {
            let found = worker_index(None, &variables(&[(name, value)]), 4);
            assert!(matches!(found, Err(IndexError::Invalid { .. })), "{name} {found:?}");
        }
        let beyond = worker_index(Some(4), &Variables::default(), 4);
        assert_eq!(beyond, Err(IndexError::OutOfRange { index: 4, count: 4 }));
    }
}
