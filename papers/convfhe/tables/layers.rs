//! Layers of networks by phase (Figure 6, Tables III and IV), both parties in this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, ensure};
use jaguar_ckks::{Context, EvaluationKeys, SecretKey};
use jaguar_convfhe::network::{self, Evaluator, Plan, Public, Times, key_specs};
use jaguar_convfhe::{Description, Inputs};
use jaguar_profile::{busy, memory};
use jaguar_ring::prg::Prg;

use super::rows::{Keys, Layer};

/// A calibrated network, and an input for it.
struct Planned {
    plan: Arc<Plan>,
    input: Vec<f32>,
}

/// Plans a network, and calibrates it with a random input.
fn planned(description: Description, context: &Context) -> Result<Planned> {
    let (count, bound) = (description.input.iter().product(), description.input_bound as f32);
    let mut prg = Prg::from_os();
    let input: Vec<f32> =
        (0..count).map(|_| bound * (prg.next_u64() as i64 as f64 * 2f64.powi(-63)) as f32).collect();
    let mut plan = Plan::new(description, context.params().values())?;
    let samples = std::slice::from_ref(&input);
    plan.calibrate(Inputs { samples, margin: 1.5, stress: &[], stress_margin: 1.0 })?;
    Ok(Planned { plan: Arc::new(plan), input })
}

/// Evaluates networks by turns, so often, each up to its layer number `first`, or to its end. Behind each comes what is compared with
/// it, by its place in the list.
///
/// # Errors
/// If a network does not fit the set, or memory does not suffice.
pub fn measure(
    context: &Arc<Context>,
    networks: Vec<Description>,
    first: Option<u32>,
    repeats: u32,
    mut made: impl FnMut(Keys),
    mut row: impl FnMut(Layer),
    mut behind: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let named = networks.into_iter().map(|description| {
        let name = description.name.clone();
        planned(description, context).context(name)
    });
    let networks = named.collect::<Result<Vec<_>>>()?;
    let needed = networks.iter().map(|of| network::memory(context, &of.plan));
    let needed = needed.collect::<Result<Vec<_>, _>>()?.into_iter().max().context("no network")?;
    if let Some(room) = memory::room() {
        let [needed, free] = [needed, room.bytes].map(|bytes| bytes as f64 / 1e9);
        ensure!(free >= needed, "networks take {needed:.1} GB, and {free:.1} are free");
    }

    let specs = key_specs(context)?;
    let (span, keys) = busy::timed(|| -> Result<_> {
        let secret = SecretKey::generate(context);
        let keys = network::Keys {
            circuit: EvaluationKeys::generate(&secret, &specs.circuit)?,
            packing: EvaluationKeys::generate(&secret, &specs.packing)?,
            public: secret.public_key(specs.public, &mut Prg::from_os())?,
        };
        Ok((secret, keys))
    });
    let (secret, keys) = keys?;
    let key_seconds = span.elapsed.as_secs_f64();
    let (span, evaluator) =
        busy::timed(|| Evaluator::new(Arc::clone(&networks[0].plan), Arc::clone(context), keys));
    let mut evaluator = evaluator?;
    made(Keys {
        key_seconds,
        matrix_seconds: span.elapsed.as_secs_f64(),
        wire_bytes: specs.bytes(context)? as f64,
        memory_bytes: needed as f64,
    });
    for _ in 0..repeats {
        for (place, Planned { plan, input }) in networks.iter().enumerate() {
            evaluator = evaluator.with(Arc::clone(plan))?;
            let name = &plan.description().name;
            evaluate(context, &secret, (plan, &evaluator), input, first, &mut row)
                .with_context(|| name.clone())?;
            behind(place)?;
        }
    }
    Ok(())
}

/// Evaluates one network once.
fn evaluate(
    context: &Context,
    secret: &SecretKey,
    (plan, evaluator): (&Plan, &Evaluator),
    input: &[f32],
    first: Option<u32>,
    row: &mut impl FnMut(Layer),
) -> Result<()> {
    let params = context.params();
    let public = Public::parse(&serde_json::to_string(&plan.public(params)?)?, params)?;
    let encrypted = public.encrypt(secret, input)?;
    let mut begin = busy::Start::now();
    let mut watch = |layer: u32, layers: u32, times: Times| {
        let Times { convolution, packing, to_slots, sine, relu, to_coefficients } = times;
        let [convolution_seconds, packing_seconds, ctos_seconds, sine_seconds, relu_seconds, stoc_seconds] =
            [convolution, packing, to_slots, sine, relu, to_coefficients].map(|phase| phase.as_secs_f64());
        let (index, layers) = (layer as usize, layers as usize);
        row(Layer {
            network: plan.description().name.clone(),
            index,
            layers,
            ciphertexts: if index < layers { plan.grids()[index].polynomials() } else { 0 },
            convolution_seconds,
            packing_seconds,
            ctos_seconds,
            sine_seconds,
            relu_seconds,
            stoc_seconds,
            busy_seconds: begin.span().busy.as_secs_f64(),
        });
        begin = busy::Start::now();
    };
    let first = first.map_or(usize::MAX, |first| first as usize);
    let answer = evaluator.measure(&encrypted, first, &mut watch, &AtomicBool::new(false))?;
    if let Some(answer) = answer {
        // That it is an answer, with every value within its bound: what was measured is what is computed.
        public.decrypt(secret, &answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jaguar_ckks::{Literal, Parameters};
    use jaguar_ring::cpu::Cpu;

    use super::*;
    use crate::convfhe::shapes;

    #[test]
    fn layers_are_measured_by_turns() {
        let params = Parameters::new(&Literal::n16().insecure(10)).unwrap();
        let context = Context::new(Cpu::detect(), params, 1).unwrap();
        for (first, indices) in [(Some(1), vec![1]), (None, vec![1, 2])] {
            let networks = vec![shapes::layer(4, 6, 3), shapes::layer(12, 6, 5)];
            let names: Vec<_> = networks.iter().map(|network| network.name.clone()).collect();
            let (mut keys, mut rows, mut places) = (Vec::new(), Vec::new(), Vec::new());
            let behind = |place| {
                places.push(place);
                Ok(())
            };
            measure(&context, networks, first, 2, |of| keys.push(of), |layer| rows.push(layer), behind)
                .unwrap();
            assert_eq!(places, [0, 1, 0, 1]);
            assert_eq!(keys.len(), 1);
            assert_eq!(keys[0].wire_bytes, key_specs(&context).unwrap().bytes(&context).unwrap() as f64);
            let expected =
                names.iter().flat_map(|name| indices.iter().map(move |&index| (name.clone(), index)));
            let expected: Vec<_> = expected.collect();
            let found: Vec<_> = rows.iter().map(|row| (row.network.clone(), row.index)).collect();
            assert_eq!(found, [expected.clone(), expected].concat());
            for row in rows {
                let last = row.index == row.layers;
                assert_eq!((row.layers, row.ciphertexts == 0), (2, last));
                assert!(row.phases()[..2].iter().all(|&seconds| seconds > 0.0), "{row:?}");
                assert!(row.phases()[2..].iter().all(|&seconds| (seconds > 0.0) != last), "{row:?}");
                assert!(row.busy_seconds > 0.0, "{row:?}");
            }
        }
    }
}
