//! Prints how long a layer takes, by phase, and what it errs by: `cargo run --release --package jaguar-ckks --example
//! layer -- [LOG_N] [CHANNELS] [SIDE] [KERNEL] [THREADS] [HALVES] [RELU]`, by default a layer of ResNet-20: 16, 16, 32, 3, 1, 1 and 7-7-13.
//! With 2 halves every coefficient has a value, with 1 every second one. With 7-15 the set is that of eight levels for ReLU. N = 2^16
//! takes 9 GB.

use std::error::Error;
use std::f64::consts::TAU;
use std::time::{Duration, Instant};

use jaguar_ckks::circuits::{Bootstrap, Composite, Evaluator, Plan};
use jaguar_ckks::convolution::{Convolution, Geometry, Kernel, Term};
use jaguar_ckks::layout::{Grid, Split};
use jaguar_ckks::packing::{Packer, key_specs};
use jaguar_ckks::{
    Context, EvaluationKeys, KeyGenerator, KeySpec, KeyedEvaluator, Literal, Parameters, SecretKey,
};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;

/// What all threads of the process had of cores.
fn processor() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(spent.tv_sec)) + Duration::from_nanos(part(spent.tv_nsec))
}

/// Prints what `work` took, and returns its processor time.
fn timed<T>(phase: &str, work: impl FnOnce() -> T) -> (Duration, T) {
    let (clock, before) = (Instant::now(), processor());
    let made = work();
    let spent = processor() - before;
    println!("{phase:45} {:9.3} {:9.3}", spent.as_secs_f64(), clock.elapsed().as_secs_f64());
    (spent, made)
}

/// The most memory that the process had, in GiB, where the system says it.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / f64::from(1 << 20))
}

fn random(prg: &mut Prg, count: usize, size: f64) -> Vec<f64> {
    (0..count).map(|_| size * prg.next_u64() as i64 as f64 * 2f64.powi(-63)).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: usize| arguments.next().map_or(Ok(default), |argument| argument.parse());
    let (log_n, channels, side, size) = (next(16)?, next(16)?, next(32)?, next(3)?);
    let (threads, halves) = (next(1)?, next(1)?);
    let relu = arguments.next().unwrap_or_else(|| "7-7-13".into());
    let set = if relu == "7-15" { Literal::n16_relu8() } else { Literal::n16() };
    let literal = if log_n == 16 { set } else { set.insecure(u32::try_from(log_n)?) };
    let context = Context::new(Cpu::detect(), Parameters::new(&literal)?, threads)?;
    let params = context.params();
    let values = params.n() / 2 * halves;
    println!(
        "{}: {values} values, {channels} channels of {side} × {side}, a kernel of {size} × {size}",
        params.name()
    );
    println!("kernel {}, {threads} threads; seconds of processors, of the clock", context.kernel().name());

    let plan = Plan::new(values, Composite::by_name(&relu).ok_or("no such polynomial")?);
    let (raised, scale) = (42f64.exp2(), 40f64.exp2());
    let moduli = (0..=params.top()).map(|level| params.modulus(level)).collect();
    let counts = plan.counts(params.n() / 2, moduli)?;
    let mut prg = Prg::from_os();
    let secret = SecretKey::generate(&context);
    let mut generator = KeyGenerator::new(&secret);
    let mut generate = |specs: &[KeySpec]| -> Result<EvaluationKeys, jaguar_ckks::Error> {
        let mut keys = EvaluationKeys::new();
        for spec in specs {
            keys.insert(generator.key(spec)?);
        }
        Ok(keys)
    };
    let (_, keys) = timed("keys of a bootstrap, once", || generate(&context.circuit_keys(&counts)));
    let (_, packing) = timed("keys of packing, once", || generate(&key_specs(&context, 0, 1)));
    let (_, evaluator) =
        timed("keys made ready, once", || keys.map(|keys| KeyedEvaluator::new(&context, keys)));
    let (evaluator, packer) = (evaluator?, Packer::new(&context, packing?, 0)?);

    let geometry = Geometry {
        outputs: channels,
        inputs: channels,
        height: size,
        width: size,
        stride: 1,
        padding: [size / 2; 4],
    };
    let weights = random(&mut prg, channels * channels * size * size, 1.0);
    let grid = Grid::new([channels, side, side], size / 2, channels.next_power_of_two())?;
    let tensor = random(&mut prg, channels * side * side, 1.0);
    let input = grid.scatter(&tensor, values)?;
    // Sums are as large as they can be and no larger.
    let made = |factor: f64| -> Result<Convolution, jaguar_ckks::Error> {
        let kernel = Kernel::new(geometry, weights.clone())?;
        Convolution::new(
            vec![Term { kernel, grid, split: Split::WHOLE, factor }],
            vec![0.0; channels],
            values,
        )
    };
    let largest = made(1.0)?.plain(&[&input], 0)?.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let convolution = made(1.0 / largest)?;
    let sums = convolution.plain(&[&input], 0)?;
    let keep = convolution.output().masks(values)?;
    let bootstrap = timed("matrices, once", || Bootstrap::new(&evaluator, plan.clone())).1?;
    let mask = timed("mask, once a grid", || bootstrap.mask(&keep[0])).1?;
    let ct = secret.encrypt(&context.encode_coefficients(&input[0], 1, scale)?, &mut prg).0;

    let inputs = [std::slice::from_ref(&ct)];
    let (products, sum) = timed("convolution: products, rescaled", || -> Result<(), jaguar_ckks::Error> {
        for out in 0..channels {
            evaluator.rescale(&convolution.sum(&evaluator, &inputs, out, 2f64.powi(88))?)?;
        }
        Ok(())
    });
    sum?;
    let (both, packed) = timed("these and packing", || convolution.packed(&packer, &inputs, 0, raised));
    println!("{:45} {:9.3}", "packing alone: the difference", both.saturating_sub(products).as_secs_f64());
    let packed = packed?;
    timed("of the next phase: ModUp", || evaluator.raise(&packed, 1, values)).1?;
    let (low, slots) = timed("ModUp, CtoS, sine", || bootstrap.slots(&packed));
    let slots = slots?;
    let (relu, rectified) = timed("ReLU, Ext", || bootstrap.rectify(&slots, &mask));
    let (back, layer) = timed("StoC", || rectified.and_then(|rectified| bootstrap.coefficients(&rectified)));
    let layer = layer?;
    println!("{:45} {:9.3}", "the layer", (both + low + relu + back).as_secs_f64());

    let period = params.modulus(0) / raised;
    let expected = sums
        .iter()
        .zip(&keep[0])
        .map(|(&x, keep)| keep * plan.relu.value((TAU * x / period).sin() * period / TAU));
    let decrypted = secret.decrypt(&layer);
    let errors: Vec<f64> =
        decrypted.iter().step_by(params.n() / values).zip(expected).map(|(x, y)| (x - y).abs()).collect();
    let square = errors.iter().map(|x| x * x).sum::<f64>() / errors.len() as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    println!(
        "log2 of the error beside the polynomial: {:.1}, at most {:.1}",
        square.sqrt().log2(),
        most.log2()
    );
    if let Some(peak) = peak() {
        println!("most memory: {peak:.1} GiB");
    }
    Ok(())
}
