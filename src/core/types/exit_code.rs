//! The exit codes and their meanings.

pub const SUCCESS: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const MAX_TURNS: u8 = 3;
pub const MAX_BUDGET: u8 = 4;
pub const DEADLINE: u8 = 5;
pub const HOOK: u8 = 6;
pub const CONTEXT: u8 = 7;
pub const NO_PROGRESS: u8 = 8;
pub const NOT_ACCEPTED: u8 = 9;
pub const TEMPORARY: u8 = 75;
pub const CREDENTIALS: u8 = 77;
pub const SIGHUP: u8 = 129;
pub const SIGINT: u8 = 130;
pub const SIGQUIT: u8 = 131;
pub const SIGUSR1: u8 = 138;
pub const SIGUSR2: u8 = 140;
pub const SIGALRM: u8 = 142;
pub const SIGTERM: u8 = 143;
pub const SIGXCPU: u8 = 152;

/// All exit codes with their meanings, as printed in the manual.
pub const MEANINGS: [(u8, &str); 20] = [
    (SUCCESS, "The task was completed."),
    (
        FAILED,
        "The run failed: the service refused the request permanently, the model declined, \
         a required MCP server was not available, standard output was not read, the result file \
         could not be written, a rehearsal ended otherwise than expected, or outlast failed.",
    ),
    (USAGE, "A mistake in the command line, the settings or the input. Nothing was sent."),
    (MAX_TURNS, "The turn limit was reached."),
    (MAX_BUDGET, "The budget was reached, or the next request could exceed it."),
    (DEADLINE, "The deadline was reached, or a wait could end only after it."),
    (HOOK, "A hook stopped the run."),
    (CONTEXT, "The conversation, a reply or a file is too large."),
    (NO_PROGRESS, "The model sent only empty replies, or repeated the same steps."),
    (
        NOT_ACCEPTED,
        "The work was not accepted: a required command did not pass, Stop hooks kept objecting, \
         no answer matched the schema, background commands did not end in time, or a tool call \
         was denied with --on-denied fail.",
    ),
    (
        TEMPORARY,
        "Temporary: overload, rate limit, quota, network, a start that took too long, or another \
         process has the session. A later attempt may succeed; the result has the command, \
         and the time if the service named one.",
    ),
    (CREDENTIALS, "The credentials are missing or were rejected."),
    (SIGHUP, "Ended by SIGHUP."),
    (SIGINT, "Ended by SIGINT."),
    (SIGQUIT, "Ended by SIGQUIT."),
    (SIGUSR1, "Ended by SIGUSR1."),
    (SIGUSR2, "Ended by SIGUSR2."),
    (SIGALRM, "Ended by SIGALRM."),
    (SIGTERM, "Ended by SIGTERM."),
    (SIGXCPU, "Ended by SIGXCPU: the limit of processor time (ulimit -t) was reached."),
];
