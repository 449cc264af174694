//! Control of processes outside the job.
