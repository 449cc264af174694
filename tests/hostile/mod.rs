//! Hostile inputs, by class: each against the real binary, or the real sandbox of the kernel.

mod bash_oracle;
mod batch_owner;
mod command_fuzz;
mod command_lines;
mod credential_places;
mod egress;
mod egress_starts;
mod egress_ways;
mod file_operands;
mod hook_guard;
mod kernel_objects;
mod memory;
mod memory_files;
mod nesting;
mod network;
mod output_files;
mod processes;
mod program_credentials;
mod recording_proxy;
mod rules;
mod sandbox_settings;
mod secrets;
mod shell_constructs;
mod start_files;
mod terminals;
mod user_programs;
mod web_pages;

use crate::tools::bench::text;
use crate::tools::sandbox::SandboxFixture;

/// The beginning of Python programs that try system calls: their numbers on this processor, and a
/// list of ways, each of which is tried in a child, as it could end the program.
const PYTHON_PRELUDE: &str = r#"
import ctypes, errno, mmap, os, signal, socket, struct, sys, threading, traceback
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
is_x86 = os.uname().machine == "x86_64"
CONNECT, PRCTL, UNSHARE, SECCOMP = (42, 157, 272, 317) if is_x86 else (203, 167, 97, 277)
RING_SETUP = 425
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result
ways = {}
def way(act):
    ways[act.__name__] = act
def other_numbers():
    call(0x40000000 | 41, 2, 1, 0)
def other_architecture():
    # socket(AF_INET, SOCK_STREAM, 0) by the 32-bit interface: mov eax, 359; ...; int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("53b867010000bb02000000b901000000ba00000000cd805bc3"))
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(at)() < 0:
        raise OSError()
if is_x86:
    way(other_numbers)
    way(other_architecture)
def try_ways():
    for name, act in ways.items():
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                act()
            except OSError:
                os._exit(1)
            except BaseException:
                traceback.print_exc()
                os._exit(2)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        is_killed = os.WIFSIGNALED(status) and act is other_architecture
        if status == 0:
            print("OPEN", name)
        elif not is_killed and os.waitstatus_to_exitcode(status) != 1:
            print("BROKEN", name, status)
"#;

/// Ways to a socket that are closed both where the network is off and where it is held to a list. The
/// arguments of the program are a port, a path and an abstract name that others listen at.
const SOCKET_WAYS: &str = r#"
port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
INET = socket.AF_INET
@way
def udp():
    socket.socket(INET, DGRAM).sendto(b"x", ("127.0.0.1", port))
@way
def multipath():
    socket.socket(INET, STREAM, 262)
@way
def raw():
    socket.socket(INET, socket.SOCK_RAW, 1)
@way
def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
@way
def vsock():
    socket.socket(40, STREAM)
@way
def algorithm():
    socket.socket(38, socket.SOCK_SEQPACKET)
@way
def unix_datagram():
    socket.socket(socket.AF_UNIX, DGRAM)
@way
def unix():
    socket.socket(socket.AF_UNIX, STREAM).connect(path)
@way
def abstract():
    socket.socket(socket.AF_UNIX, STREAM).connect("\0" + name)
@way
def fast_open():
    socket.socket(INET, STREAM).sendto(b"x", 0x20000000, ("127.0.0.1", port))
@way
def ring():
    call(RING_SETUP, 8, ctypes.create_string_buffer(256))
@way
def raw_pair():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
@way
def flagged_datagram_pair():
    socket.socketpair(socket.AF_UNIX, DGRAM | socket.SOCK_NONBLOCK)
@way
def datagram_pair():
    socket.socketpair(socket.AF_UNIX, DGRAM)
"#;

/// Runs a Python program with this prelude in the working tree, as a command.
async fn run_python(fixture: &SandboxFixture, program: &str, arguments: &str) -> String {
    let program = format!("{PYTHON_PRELUDE}{program}");
    std::fs::write(fixture.root.join("work/program"), program).expect("a file");
    text(&fixture.bash(&format!("python3 -I -S program {arguments}")).await)
}
