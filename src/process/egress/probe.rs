//! The probe of a job that is held to a list of domains: a child that makes calls that must
//! succeed, and calls that must be refused.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::ExitCode;

/// The argument that makes this binary the child. A loopback port of another program follows it.
pub const PROBE_ARGUMENT: &str = "__egress_probe";

/// An address for documentation (RFC 5737), which no host uses.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A question for the address of `probe.arpa`, with its length before it.
const QUESTION: [u8; 30] = [
    0, 28, 7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5, b'p', b'r', b'o', b'b', b'e', 4, b'a', b'r',
    b'p', b'a', 0, 0, 1, 0, 1,
];

/// The result of the child, with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProbeResult {
    Holds = 0,
    /// The relay cannot be reached, or does not decide.
    NoRelay = 10,
    /// A port of another program can be reached.
    ReachesOthers = 11,
    /// A socket outside the control of the notifier can be made.
    MakesOthers = 12,
}

impl ProbeResult {
    const ALL: [Self; 4] = [Self::Holds, Self::NoRelay, Self::ReachesOthers, Self::MakesOthers];

    /// Returns the result for an exit code. `None` if the child ended in another way.
    pub fn of_exit_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|result| *result as i32 == code)
    }
}

/// Runs the probe in this process.
pub(in super::super) fn run_probe(port: &str) -> ExitCode {
    let result = port.parse().map_or(ProbeResult::ReachesOthers, try_calls);
    ExitCode::from(result as u8)
}

fn try_calls(other: u16) -> ProbeResult {
    if ask_resolver().is_err() {
        return ProbeResult::NoRelay;
    }
    let other = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), other);
    match TcpStream::connect(other).map_err(|error| error.kind()) {
        Ok(_) => return ProbeResult::ReachesOthers,
        Err(io::ErrorKind::ConnectionRefused) => {}
        Err(_) => return ProbeResult::NoRelay,
    }
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.kind()) {
        Ok(_) => ProbeResult::MakesOthers,
        Err(io::ErrorKind::PermissionDenied) => ProbeResult::Holds,
        Err(_) => ProbeResult::NoRelay,
    }
}

/// Asks a resolver that does not exist: outlast answers in its place.
fn ask_resolver() -> io::Result<()> {
    let mut stream = TcpStream::connect((ELSEWHERE, 53))?;
    stream.write_all(&QUESTION)?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer)?;
    if answer[2..4] == QUESTION[2..4] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
