//! The note for the model about connections that were refused.

use crate::process::{Refusal, RefusalReason};

/// The maximum number of refusals that a note names.
const REFUSALS_NAMED_MAX: usize = 10;

/// Formats the note for the result of a command. `None`: nothing was refused. `hosts` lists the
/// open hosts briefly.
pub(in super::super) fn refusal_note(refusals: &[Refusal], hosts: &str) -> Option<String> {
    if refusals.is_empty() {
        return None;
    }
    let named: Vec<String> = refusals.iter().take(REFUSALS_NAMED_MAX).map(describe).collect();
    let more = match refusals.len().saturating_sub(REFUSALS_NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Some(format!(
        "[The network of commands is limited. Refused: {}{more}. This cannot change during the \
         run: use what can be reached ({hosts}), or say what is missing. UDP and ICMP are closed, too.]",
        named.join(", ")
    ))
}

fn describe(refusal: &Refusal) -> String {
    let Refusal { host, port, reason, .. } = refusal;
    let destination = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    let why = match reason {
        RefusalReason::NotListed => "not in sandbox.network.allowedDomains",
        RefusalReason::Denied => "in sandbox.network.deniedDomains",
        RefusalReason::PrivateAddress => "at a private address, which is not listed",
        RefusalReason::Loopback => "a port of another program on this machine",
        RefusalReason::UnixSocket => "a socket of another program",
        RefusalReason::LocalBinding => "sandbox.network.allowLocalBinding is false",
        RefusalReason::TooMany => "too many connections at a time",
        RefusalReason::ListenerLost => "the command was ended: its calls could not be decided",
    };
    format!("{destination} ({why})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_each_refusal_and_what_is_open() {
        assert_eq!(refusal_note(&[], "a.example"), None);
        let one = Refusal::new("b.example", Some(443), RefusalReason::NotListed);
        let note = refusal_note(std::slice::from_ref(&one), "a.example").expect("a refusal");
        assert!(note.contains("b.example:443 (not in sandbox.network.allowedDomains)"), "{note}");
        assert!(note.contains("(a.example)"), "{note}");
        let many = vec![one; 12];
        let note = refusal_note(&many, "a.example").expect("refusals");
        assert!(note.contains(", and 2 more."), "{note}");
    }
}
