//! Runs classic BPF programs as the kernel does, for tests of filters.

/// An instruction: its code, its two jumps, and its constant, as in linux/filter.h.
pub(crate) type Instruction = (u16, u8, u8, u32);

/// Runs a filter on the words of a `seccomp_data`: the number of a call, the architecture, two
/// halves of an address, and the halves of the arguments. Returns the result, and the number of
/// instructions that were run.
pub(crate) fn run(program: &[Instruction], call: &[u32]) -> (u32, usize) {
    let (mut at, mut value) = (0, 0);
    for count in 1.. {
        let (code, if_true, if_false, constant) = program[at];
        let distance = usize::try_from(constant).expect("it has 32 bits");
        let jump = |holds: bool| usize::from(if holds { if_true } else { if_false });
        at += 1;
        match code {
            0x06 => return (constant, count),
            0x20 => value = call[distance / size_of::<u32>()],
            0x54 => value &= constant,
            0x05 => at += distance,
            0x15 => at += jump(value == constant),
            0x25 => at += jump(value > constant),
            0x35 => at += jump(value >= constant),
            0x45 => at += jump(value & constant != 0),
            code => panic!("an instruction that no filter has: {code:#x}"),
        }
    }
    unreachable!("a filter ends")
}
