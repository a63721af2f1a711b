//! Runs one of the batched AES functions some times, for a tool that counts instructions (`tools/arm_counts.py`).
//!
//! `counted_ot` lists functions and instruction sets; `counted_ot WHAT SET TIMES` runs. Two runs with different TIMES differ by nothing else.

use jaguar_ot::steps;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, set, times] = arguments.as_slice() else {
        println!("{}", steps::BATCHES.join(" "));
        println!("{}", steps::kernels().join(" "));
        return Ok(());
    };
    let times: usize = times.parse().map_err(|_| format!("{times} is no number of times"))?;
    steps::run_kernel(set, what, times).ok_or_else(|| format!("no {what} by {set}"))
}
