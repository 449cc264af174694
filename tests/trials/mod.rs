//! The failures that users of unattended agents suffer, each tried on the real binary over real
//! HTTP (or on the machine's real time, where no socket is needed).

mod chain;
mod context;
mod context_kept;
mod demands;
mod demands_schema;
mod endpoints;
mod fast;
mod gateways;
mod history;
mod history_cache;
mod history_fallback;
mod history_limits;
mod history_money;
mod history_sessions;
mod history_tools;
mod logins;
mod loops;
mod media;
mod network;
mod rehearsals;
mod sandbox;
mod spending;
mod survivors;
mod time;
mod time_ends;
mod time_input;
mod time_silence;
mod time_torn;
mod time_waits;
mod truth;
mod truth_ends;
mod truth_output;
mod truth_signals;
mod truth_turns;
mod untrusted;
