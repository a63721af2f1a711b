//! The online products on an NVIDIA card, where there is one.

use std::ops::Range;
use std::sync::Arc;

pub use jaguar_gpu::GpuError;
use jaguar_gpu::{Gpu, Loaded, Shape};
use jaguar_graph::network::Weights;
use jaguar_linear::product::{Device, DeviceProduct, Hardware, Processor, ProductShape, Running};
use jaguar_ring::cpu::Cpu;
use zeroize::Zeroizing;

/// Which device a person asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Choice {
    /// The first NVIDIA card, where this program supports them and one is there; else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The first NVIDIA card, or none at all.
    Gpu,
}

/// What a server computes with, on the device that is asked for; `tell` hears when a card fails later on.
///
/// # Errors
/// When a card is asked for and there is none.
pub fn open(
    choice: Choice,
    cpu: Cpu,
    tell: impl Fn(&GpuError) + Send + Sync + 'static,
) -> Result<Hardware, GpuError> {
    match choice {
        Choice::Cpu => Ok(cpu.into()),
        Choice::Gpu => Ok(Hardware { cpu, device: Arc::new(OnGpu::open(cpu, tell)?) }),
        Choice::Auto => Ok(match OnGpu::open(cpu, tell) {
            Ok(gpu) => Hardware { cpu, device: Arc::new(gpu) },
            Err(_) => cpu.into(),
        }),
    }
}

/// Who hears that a card failed.
type Tell = Arc<dyn Fn(&GpuError) + Send + Sync>;

/// The first card. Layers that it does not take, and products in which it fails, are left to the processor: the words
/// are the same.
pub(crate) struct OnGpu {
    gpu: Arc<Gpu>,
    processor: Processor,
    tell: Tell,
}

impl OnGpu {
    /// Opens the first card; `tell` hears when it fails later on.
    ///
    /// # Errors
    /// When this program was built without support for cards, or there is none.
    pub(crate) fn open(cpu: Cpu, tell: impl Fn(&GpuError) + Send + Sync + 'static) -> Result<Self, GpuError> {
        Ok(Self { gpu: Gpu::open(0)?, processor: Processor(cpu), tell: Arc::new(tell) })
    }
}

impl Device for OnGpu {
    fn describe(&self) -> String {
        format!("GPU ({})", self.gpu.name())
    }

    fn load(&self, shape: ProductShape<'_>, weights: &Weights) -> Arc<dyn DeviceProduct> {
        let on_processor = self.processor.load(shape, weights);
        let described = described(&shape);
        if described.check().is_err() {
            return on_processor;
        }
        match self.gpu.load(described, &with_exponents(&shape, weights)) {
            Ok(loaded) => Arc::new(ProductOnGpu {
                loaded,
                bits: shape.bits,
                on_processor,
                tell: Arc::clone(&self.tell),
            }),
            Err(e) => {
                (self.tell)(&e);
                on_processor
            }
        }
    }
}

/// The layer, as a card's kernels see it.
fn described(shape: &ProductShape<'_>) -> Shape {
    let ProductShape { spec, in_shape, .. } = *shape;
    let [h, w] = spec.output_hw(in_shape).expect("a layer that fits its input");
    Shape {
        input: in_shape,
        output: [spec.out_channels, h, w],
        kernel: spec.kernel,
        stride: spec.stride,
        dilation: spec.dilation,
        pads: [spec.pads[0], spec.pads[1]],
        groups: spec.groups,
    }
}

/// The weights times two to their exponents: 16 bits and 12 more at most.
fn with_exponents(shape: &ProductShape<'_>, weights: &Weights) -> Zeroizing<Vec<i32>> {
    let each = (weights.weights.len() / shape.spec.out_channels).max(1);
    let wide = weights.weights.iter().enumerate().map(|(i, &w)| i32::from(w) << weights.exponent(i / each));
    Zeroizing::new(wide.collect())
}

struct ProductOnGpu {
    loaded: Loaded,
    bits: u32,
    on_processor: Arc<dyn DeviceProduct>,
    tell: Tell,
}

impl DeviceProduct for ProductOnGpu {
    fn begin(self: Arc<Self>, x: &[u64]) -> Box<dyn Running> {
        match self.loaded.run(x) {
            Ok(words) => Box::new(Done { words: Zeroizing::new(words), bits: self.bits }),
            Err(e) => {
                (self.tell)(&e);
                Arc::clone(&self.on_processor).begin(x)
            }
        }
    }
}

/// All channels at once.
struct Done {
    words: Zeroizing<Vec<u64>>,
    bits: u32,
}

impl Running for Done {
    fn together(&self) -> usize {
        1
    }

    fn channels(&mut self, channels: Range<usize>, out: &mut [u64]) {
        let (each, low) = (out.len() / channels.len().max(1), u64::MAX >> (64 - self.bits));
        let words = &self.words[channels.start * each..channels.end * each];
        out.iter_mut().zip(words).for_each(|(out, &word)| *out = word & low);
    }
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::{Bias, Linear};

    use super::*;

    /// What a card computes, in plain words: `jaguar_gpu`'s tests hold its kernels to the same definition.
    fn by_definition(shape: &Shape, weights: &[i32], x: &[u64]) -> Vec<u64> {
        let places = shape.layout();
        let mut padded = vec![0; places.padded_words(shape)];
        places.pad(shape, x, &mut padded);
        let value = |output: usize, base: u32| {
            let group = output / shape.outputs();
            let terms = places.terms.iter().zip(&weights[output * shape.terms()..]);
            terms.fold(0u64, |sum, (&term, &w)| {
                let word = padded[group * places.group_step as usize + base as usize + term as usize];
                sum.wrapping_add((i64::from(w) as u64).wrapping_mul(word))
            })
        };
        (0..shape.output[0]).flat_map(|d| places.bases.iter().map(move |&base| value(d, base))).collect()
    }

    #[test]
    fn a_card_gets_what_the_processor_computes() {
        let plain = Linear::same(6, 3, 10);
        let cases = [
            (plain.clone(), [4, 9, 7]),
            (Linear { stride: [2, 1], pads: [1, 0, 2, 1], dilation: [1, 2], ..plain.clone() }, [4, 11, 12]),
            (Linear { groups: 6, ..plain.clone() }, [6, 8, 8]),
            (Linear { kernel: [5, 4], pads: [0; 4], ..plain }, [3, 5, 4]),
        ];
        for (spec, in_shape) in cases {
            let each = in_shape[0] / spec.groups * spec.kernel[0] * spec.kernel[1];
            let count = spec.out_channels * each;
            let weights = Weights {
                weights: (0..count).map(|i| ((i * 7919) % 30_011) as i16 - 15_000).collect(),
                exponents: (0..spec.out_channels).map(|d| (d % 4) as u8).collect(),
                bias: Bias::PerChannel(vec![0; spec.out_channels]),
            };
            let values = in_shape.iter().product::<usize>() as u64;
            let x: Vec<u64> = (0..values).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            let shape = ProductShape { spec: &spec, in_shape, bits: 40, weight_bits: 15 };
            let described = described(&shape);
            assert_eq!(described.check(), Ok(()));
            let words = by_definition(&described, &with_exponents(&shape, &weights), &x);
            let mut card: Box<dyn Running> =
                Box::new(Done { words: Zeroizing::new(words.clone()), bits: 40 });
            let mut processor = Processor(Cpu::detect()).load(shape, &weights).begin(&x);
            let [mut got, mut want] = [vec![0; words.len()], vec![0; words.len()]];
            card.channels(0..spec.out_channels, &mut got);
            processor.channels(0..spec.out_channels, &mut want);
            assert_eq!(got, want, "{spec:?}");
        }
    }

    #[test]
    fn without_a_card_the_processor_serves() {
        if OnGpu::open(Cpu::detect(), |_| ()).is_ok() {
            return;
        }
        let open = |choice| open(choice, Cpu::detect(), |_| ());
        assert!(open(Choice::Gpu).is_err());
        assert_eq!(
            open(Choice::Auto).map(|h| h.device.describe()).ok(),
            open(Choice::Cpu).map(|h| h.device.describe()).ok()
        );
    }
}
