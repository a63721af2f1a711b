//! Prints how long the operations of CKKS take: `cargo run --release --package jaguar-ckks --example operations --
//! [LOG_N] [THREADS] [REPEATS]`, by default 16, 1 and 9. N = 2^16 takes 1 GB.

use std::error::Error;

use jaguar_ckks::{Context, Literal, Parameters, measure};
use jaguar_ring::cpu::Cpu;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let mut next = |default: u32| arguments.next().unwrap_or(Ok(default));
    let (log_n, threads, repeats) = (next(16)?, next(1)?, next(9)?);
    let literal = if log_n == 16 { Literal::n16() } else { Literal::n16().insecure(log_n) };
    let params = Parameters::new(&literal)?;
    println!(
        "{}: N = {}, {} primes and {} special ones, log QP = {:.0}; {threads} threads, {repeats} repeats",
        params.name(),
        params.n(),
        params.primes().len(),
        params.special().len(),
        params.log_modulus(),
    );
    let context = Context::new(Cpu::detect(), params, threads as usize)?;
    println!("kernel {}; milliseconds: least, median", context.kernel().name());
    for measure::Measured { name, least, median } in measure::operations(&context, repeats as usize)? {
        println!("{name:45} {:8.3} {:8.3}", least.as_secs_f64() * 1e3, median.as_secs_f64() * 1e3);
    }
    Ok(())
}
