//! The failures that users of unattended agents suffer, each tried on the real binary over real
//! HTTP (or on the machine's real time, where no socket is needed).

mod history;
mod time;
mod truth;
