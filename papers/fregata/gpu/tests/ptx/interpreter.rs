//! An interpreter for the part of PTX that the kernels use.

use std::collections::HashMap;

/// How many blocks, `[x, y, z]`, and threads of each, `[x, y]`.
#[derive(Clone, Copy)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 2],
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Register(usize),
    Value(u64),
    /// `%tid.x` and its like: which of [`SPECIAL`].
    Special(usize),
}

const SPECIAL: [&str; 5] = ["%tid.x", "%tid.y", "%ctaid.x", "%ctaid.y", "%ctaid.z"];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// To a register, from operands, by name.
    Compute(&'static str),
    LoadParameter(usize, usize),
    /// Space, bytes.
    Load(Space, usize),
    Store(Space, usize),
    Branch(usize),
    Barrier,
    Return,
    /// Says something to the compiler only.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Space {
    Global,
    Shared,
}

#[derive(Clone, Debug)]
struct Instruction {
    /// A predicate's register, and what it must be.
    guard: Option<(usize, bool)>,
    op: Op,
    target: usize,
    operands: Vec<Operand>,
    /// Added to an address.
    offset: u64,
    text: String,
}

/// One kernel.
pub struct Program {
    instructions: Vec<Instruction>,
    registers: usize,
    shared_bytes: usize,
}

/// What computes a register from operands. The names are PTX's.
const COMPUTED: [&str; 26] = [
    "mov.u32",
    "mov.u64",
    "add.s32",
    "add.s64",
    "sub.s64",
    "mul.lo.s64",
    "mul.wide.s32",
    "mul.wide.u32",
    "mad.lo.s32",
    "shl.b32",
    "shl.b64",
    "shr.u32",
    "shr.u64",
    "and.b32",
    "or.b32",
    "and.pred",
    "or.pred",
    "setp.ge.u32",
    "setp.lt.u32",
    "setp.eq.s32",
    "setp.ne.s32",
    "cvt.u64.u32",
    "cvt.s64.s32",
    "cvt.u32.u64",
    "cvta.to.global.u64",
    "not.pred",
];

/// Arrays lie this far apart, so that an index beyond one's end meets none.
const ARRAY_SHIFT: u32 = 40;

impl Program {
    /// The kernel of this name.
    pub fn parse(ptx: &str, kernel: &str) -> Self {
        let mut shared = HashMap::new();
        let mut shared_bytes = 0u64;
        for line in ptx.lines().filter(|l| l.starts_with(".visible .shared")) {
            let (name, size) = line.rsplit_once(' ').unwrap().1.split_once('[').unwrap();
            shared.insert(name.to_owned(), shared_bytes);
            shared_bytes += size.trim_end_matches("];").parse::<u64>().unwrap();
        }
        let body = ptx.split_once(&format!(".entry {kernel}(")).expect("the kernel").1;
        let body = body.split_once("\n{").unwrap().1.split_once("\n}").unwrap().0;
        let lines: Vec<&str> = body
            .lines()
            .map(|l| l.split("//").next().unwrap().trim())
            .filter(|l| !l.is_empty() && !l.starts_with(".reg"))
            .collect();
        let mut labels = HashMap::new();
        let mut at = 0;
        for line in &lines {
            match line.strip_suffix(':') {
                Some(label) => _ = labels.insert(label, at),
                None => at += 1,
            }
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut parser = Parser { kernel, labels: &labels, shared: &shared, names: &mut names };
        let instructions =
            lines.iter().filter(|l| !l.ends_with(':')).map(|l| parser.instruction(l)).collect();
        Self { instructions, registers: names.len(), shared_bytes: shared_bytes as usize }
    }

    /// Runs it; hands back the arrays. The kernel's parameters are the arrays, then the numbers.
    pub fn run<const N: usize>(&self, grid: Grid, mut arrays: [Vec<u8>; N], numbers: &[u32]) -> [Vec<u8>; N] {
        let bases = (0..N).map(|i| (i as u64 + 1) << ARRAY_SHIFT);
        let parameters: Vec<u64> = bases.chain(numbers.iter().map(|&n| u64::from(n))).collect();
        let [x, y, z] = grid.blocks;
        for block in (0..x * y * z).map(|i| [i % x, i / x % y, i / x / y]) {
            let mut shared = vec![0xA5; self.shared_bytes];
            let mut threads: Vec<Thread> = (0..grid.threads[0] * grid.threads[1])
                .map(|i| Thread {
                    special: [i % grid.threads[0], i / grid.threads[0], block[0], block[1], block[2]],
                    registers: vec![0; self.registers],
                    at: Some(0),
                })
                .collect();
            loop {
                let mut waiting = 0;
                for thread in &mut threads {
                    waiting += usize::from(self.to_barrier(thread, &parameters, &mut arrays, &mut shared));
                }
                if waiting == 0 {
                    break;
                }
                assert_eq!(waiting, threads.len(), "some threads of a block wait for others that have left");
            }
        }
        arrays
    }

    /// Runs a thread to its next barrier. Says whether it got to one.
    fn to_barrier(
        &self,
        thread: &mut Thread,
        parameters: &[u64],
        arrays: &mut [Vec<u8>],
        shared: &mut [u8],
    ) -> bool {
        let Some(mut at) = thread.at.take() else { return false };
        loop {
            let i = &self.instructions[at];
            at += 1;
            if i.guard.is_some_and(|(register, wanted)| (thread.registers[register] != 0) != wanted) {
                continue;
            }
            let value = |operand: &Operand| match *operand {
                Operand::Register(register) => thread.registers[register],
                Operand::Value(value) => value,
                Operand::Special(which) => u64::from(thread.special[which]),
            };
            match i.op {
                Op::Compute(name) => {
                    let operands: Vec<u64> = i.operands.iter().map(value).collect();
                    thread.registers[i.target] = compute(name, &operands);
                }
                Op::LoadParameter(which, bytes) => {
                    assert_eq!(bytes, if which < arrays.len() { 8 } else { 4 }, "{}", i.text);
                    thread.registers[i.target] = parameters[which];
                }
                Op::Load(space, bytes) => {
                    let address = value(&i.operands[0]).wrapping_add(i.offset);
                    let mut word = [0; 8];
                    word[..bytes].copy_from_slice(place(space, address, bytes, arrays, shared, &i.text));
                    thread.registers[i.target] = u64::from_le_bytes(word);
                }
                Op::Store(space, bytes) => {
                    let address = value(&i.operands[0]).wrapping_add(i.offset);
                    let word = value(&i.operands[1]).to_le_bytes();
                    place(space, address, bytes, arrays, shared, &i.text).copy_from_slice(&word[..bytes]);
                }
                Op::Branch(to) => at = to,
                Op::Barrier => {
                    thread.at = Some(at);
                    return true;
                }
                Op::Return => return false,
                Op::Nothing => {}
            }
        }
    }
}

struct Thread {
    special: [u32; 5],
    registers: Vec<u64>,
    /// Where it waits at a barrier, or begins. Nothing when it has left.
    at: Option<usize>,
}

/// The bytes at an address, which must lie inside an array and be aligned.
fn place<'a>(
    space: Space,
    address: u64,
    bytes: usize,
    arrays: &'a mut [Vec<u8>],
    shared: &'a mut [u8],
    text: &str,
) -> &'a mut [u8] {
    assert_eq!(address % bytes as u64, 0, "not aligned: {text}");
    let (array, from) = match space {
        Space::Shared => (shared, address as usize),
        Space::Global => {
            let which = (address >> ARRAY_SHIFT) as usize;
            assert!((1..=arrays.len()).contains(&which), "outside all arrays: {text}");
            (&mut arrays[which - 1][..], (address & ((1 << ARRAY_SHIFT) - 1)) as usize)
        }
    };
    array.get_mut(from..from + bytes).unwrap_or_else(|| panic!("outside its array: {text}"))
}

/// One of [`COMPUTED`].
fn compute(name: &str, operands: &[u64]) -> u64 {
    let [a, b, c] = [0, 1, 2].map(|i| operands.get(i).copied().unwrap_or(0));
    let (narrow_a, narrow_b, narrow_c) = (a as u32, b as u32, c as u32);
    // A shift by the register's width or more gives zero.
    let shift = narrow_b;
    match name {
        "mov.u32" | "cvt.u32.u64" | "cvt.u64.u32" => u64::from(narrow_a),
        "mov.u64" | "cvta.to.global.u64" => a,
        "add.s32" => u64::from(narrow_a.wrapping_add(narrow_b)),
        "add.s64" => a.wrapping_add(b),
        "sub.s64" => a.wrapping_sub(b),
        "mul.lo.s64" => a.wrapping_mul(b),
        "mul.wide.s32" => (i64::from(narrow_a as i32) * i64::from(narrow_b as i32)) as u64,
        "mul.wide.u32" => u64::from(narrow_a) * u64::from(narrow_b),
        "mad.lo.s32" => u64::from(narrow_a.wrapping_mul(narrow_b).wrapping_add(narrow_c)),
        "shl.b32" => u64::from(narrow_a.checked_shl(shift).unwrap_or(0)),
        "shl.b64" => a.checked_shl(shift).unwrap_or(0),
        "shr.u32" => u64::from(narrow_a.checked_shr(shift).unwrap_or(0)),
        "shr.u64" => a.checked_shr(shift).unwrap_or(0),
        "and.b32" => u64::from(narrow_a & narrow_b),
        "or.b32" => u64::from(narrow_a | narrow_b),
        "and.pred" => a & b,
        "or.pred" => a | b,
        "not.pred" => a ^ 1,
        "setp.ge.u32" => u64::from(narrow_a >= narrow_b),
        "setp.lt.u32" => u64::from(narrow_a < narrow_b),
        "setp.eq.s32" => u64::from(narrow_a == narrow_b),
        "setp.ne.s32" => u64::from(narrow_a != narrow_b),
        "cvt.s64.s32" => i64::from(narrow_a as i32) as u64,
        _ => unreachable!("{name} was taken when the kernel was read"),
    }
}

struct Parser<'a> {
    kernel: &'a str,
    labels: &'a HashMap<&'a str, usize>,
    shared: &'a HashMap<String, u64>,
    names: &'a mut HashMap<String, usize>,
}

impl Parser<'_> {
    fn instruction(&mut self, line: &str) -> Instruction {
        let (guard, rest) = match line.strip_prefix('@') {
            Some(rest) => {
                let (predicate, rest) = rest.split_once(char::is_whitespace).unwrap();
                let (name, wanted) =
                    predicate.strip_prefix('!').map_or((predicate, true), |name| (name, false));
                (Some((self.register(name), wanted)), rest.trim())
            }
            None => (None, line),
        };
        let rest = rest.strip_suffix(';').unwrap_or_else(|| panic!("not an instruction: {line}"));
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
        let mut i = Instruction {
            guard,
            op: Op::Nothing,
            target: 0,
            operands: Vec::new(),
            offset: 0,
            text: line.to_owned(),
        };
        let bytes = || if name.ends_with("64") { 8 } else { 4 };
        match name {
            "ld.param.u32" | "ld.param.u64" => {
                let prefix = format!("[{}_param_", self.kernel);
                let which =
                    arguments[1].strip_prefix(&prefix).unwrap().trim_end_matches(']').parse().unwrap();
                i.op = Op::LoadParameter(which, bytes());
                i.target = self.register(arguments[0]);
            }
            "ld.global.u32" | "ld.global.u64" | "ld.shared.u32" => {
                i.op = Op::Load(space(name), bytes());
                i.target = self.register(arguments[0]);
                self.address(arguments[1], &mut i);
            }
            "st.global.u64" | "st.shared.u32" => {
                i.op = Op::Store(space(name), bytes());
                self.address(arguments[0], &mut i);
                i.operands.push(self.operand(arguments[1]));
            }
            "bra" | "bra.uni" => i.op = Op::Branch(self.labels[arguments[0]]),
            "bar.sync" => {
                assert_eq!(arguments, ["0"], "another barrier");
                i.op = Op::Barrier;
            }
            "ret" => i.op = Op::Return,
            ".pragma" => {}
            _ => {
                let known = COMPUTED.iter().find(|known| **known == name);
                i.op = Op::Compute(known.unwrap_or_else(|| panic!("the interpreter does not know {name}")));
                i.target = self.register(arguments[0]);
                i.operands = arguments[1..].iter().map(|a| self.operand(a)).collect();
            }
        }
        i
    }

    fn register(&mut self, name: &str) -> usize {
        assert!(name.starts_with('%'), "{name} is no register");
        let next = self.names.len();
        *self.names.entry(name.to_owned()).or_insert(next)
    }

    fn operand(&mut self, text: &str) -> Operand {
        if let Some(which) = SPECIAL.iter().position(|special| *special == text) {
            Operand::Special(which)
        } else if text.starts_with('%') {
            Operand::Register(self.register(text))
        } else if let Some(&address) = self.shared.get(text) {
            Operand::Value(address)
        } else {
            Operand::Value(text.parse::<i64>().unwrap_or_else(|_| panic!("not an operand: {text}")) as u64)
        }
    }

    /// `[base]` or `[base+offset]`.
    fn address(&mut self, text: &str, i: &mut Instruction) {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        i.operands.push(self.operand(base));
        i.offset = offset.parse::<i64>().unwrap() as u64;
    }
}

fn space(name: &str) -> Space {
    if name.contains(".shared.") { Space::Shared } else { Space::Global }
}
