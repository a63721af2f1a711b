//! Measures products of matrices between two threads: `RAYON_NUM_THREADS=1 cargo run --release -p jaguar-mpc --example
//! matrices -- --help`.
//!
//! Prints, for each party, processor seconds and bytes by stage. Linux only (the scheduler's count of a thread's time).
//! The default is the first product of attention in ViT-Tiny. With `--by-value` the bytes are those of as many products
//! of two values, and nothing is run.

use std::time::Duration;

use clap::Parser;
use jaguar_mpc::semantics::Matrices;
use jaguar_mpc::{
    Elementwise, MatrixProduct, MatrixProductParams, MpcError, Nonlinear, Party, ProductParams,
};
use jaguar_ot::Role;
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_wire::{Channel, Stage, memory_pair};

/// What a product of matrices costs between two threads.
#[derive(Clone, Copy, Parser)]
struct Options {
    /// So many products side by side.
    #[arg(long, default_value_t = 3)]
    heads: usize,
    /// Rows of the first factor.
    #[arg(long, default_value_t = 197)]
    rows: usize,
    /// Columns of the first factor, rows of the second.
    #[arg(long, default_value_t = 64)]
    inner: usize,
    /// Columns of the second factor.
    #[arg(long, default_value_t = 197)]
    columns: usize,
    /// Bits of a result.
    #[arg(long, default_value_t = 26)]
    bits: u32,
    /// Bits that are cut off.
    #[arg(long, default_value_t = 16)]
    shift: u32,
    /// Products of two values instead.
    #[arg(long)]
    by_value: bool,
}

/// Time of a processor that this thread has taken.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

/// Seconds offline and online of one party.
fn measured(
    role: Role,
    mut chan: Channel,
    count: usize,
    params: MatrixProductParams,
) -> Result<[f64; 2], MpcError> {
    let mut party = Party::new(role, InsecureTestDealer::new(1, role));
    chan.enter(Stage::Offline, "example");
    let values: Vec<u64> = (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).collect();
    let start = spent();
    let prepared = MatrixProduct::prepare(&mut party, &mut chan, params)?;
    let middle = spent();
    prepared.run(&mut chan, &values)?;
    chan.flush()?;
    let end = spent();
    Ok([middle - start, end - middle].map(|time| time.as_secs_f64()))
}

fn both(count: usize, params: MatrixProductParams) -> Result<[[f64; 2]; 2], MpcError> {
    let (a, b) = memory_pair();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || measured(Role::Server, b, count, params));
        let client = measured(Role::Client, a, count, params)?;
        Ok([client, server.join().expect("the server's thread")?])
    })
}

fn main() -> Result<(), MpcError> {
    let o = Options::parse();
    let matrices =
        Matrices { batch: o.heads, rows: o.rows, inner: o.inner, columns: o.columns, transposed: [false; 2] };
    let (cost, seconds) = if o.by_value {
        let params = ProductParams { out_bits: o.bits, shift: o.shift, offsets: [0; 2] };
        (Elementwise { count: matrices.products() as usize, params }.cost(), None)
    } else {
        let params = MatrixProductParams { out_bits: o.bits, shift: o.shift, matrices };
        let [first, second, _] = matrices.counts().unwrap_or_default();
        (params.cost(), Some(both(first + second, params)?))
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{} products of {} x {} by {} x {}, {} bits:",
        o.heads,
        o.rows,
        o.inner,
        o.inner,
        o.columns,
        o.bits + o.shift
    );
    println!("offline: {:.2} MiB up, {:.2} MiB down", mib(cost.prepare_up), mib(cost.prepare_down));
    println!("online:  {:.2} MiB up, {:.2} MiB down", mib(cost.up), mib(cost.down));
    println!("{} correlations", cost.bits_from_server);
    for (name, [offline, online]) in ["client", "server"].into_iter().zip(seconds.into_iter().flatten()) {
        println!("{name}: {offline:.3} s offline, {online:.3} s online");
    }
    Ok(())
}
