//! `jaguar params`: what a backend takes for a model or for single layers, and what was weighed.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use jaguar::bundle::Bundle;
use jaguar::linear::backend::Request;
use jaguar::network::{Linear, Shape};
use jaguar::plan::{BackendId, Choices, Plan, WEIGHT_MEMORY};
use jaguar::reports::terminal::say;

use crate::hide::HideFor;
use crate::kit;
use crate::protocol;

/// The group of options in `--help` that are for single layers.
const LAYER: &str = "A single layer instead of a model";

#[derive(clap::Args)]
#[command(next_help_heading = "Backend")]
pub struct Args {
    /// The compiled model.
    #[arg(help_heading = None, required_unless_present = "layer")]
    model: Option<PathBuf>,
    /// Whose parameters.
    #[arg(long, value_parser = protocol::parse)]
    backend: BackendId,
    #[command(flatten)]
    hide_for: HideFor,
    /// A layer: CxHxW,OUT,KERNEL, and if wanted ,STRIDE and ,GROUPS.
    ///
    /// It is padded to keep its size. May be given more than once.
    #[arg(long, help_heading = LAYER, conflicts_with = "model")]
    layer: Vec<Shaped>,
    /// Bits of its activations, guard bits included.
    #[arg(long, help_heading = LAYER, value_name = "BITS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=48))]
    activation_bits: u32,
    /// By how many bits its products are shifted down.
    #[arg(long, help_heading = LAYER, value_name = "BITS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=30))]
    shift: u32,
    /// Bits of its weights, exponents included.
    #[arg(long, help_heading = LAYER, value_name = "BITS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=24))]
    weight_bits: u32,
}

/// A layer as it is written on the command line.
#[derive(Clone, Debug)]
struct Shaped {
    text: String,
    in_shape: Shape,
    spec: Linear,
}

impl FromStr for Shaped {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
        let (shape, rest) = text.split_once(',').ok_or("CxHxW,OUT,KERNEL[,STRIDE[,GROUPS]]")?;
        let shape: Vec<usize> = shape.split('x').map(number).collect::<Result<_, _>>()?;
        let in_shape: Shape = shape.try_into().map_err(|_| "three sizes: CxHxW")?;
        let rest: Vec<usize> = rest.split(',').map(number).collect::<Result<_, _>>()?;
        let [out, kernel, ref rest @ ..] = rest[..] else {
            return Err("output channels and kernel: CxHxW,OUT,KERNEL".into());
        };
        let (stride, groups) = (rest.first().copied().unwrap_or(1), rest.get(1).copied().unwrap_or(1));
        let spec = Linear { stride: [stride; 2], groups, ..Linear::same(out, kernel, 0) };
        let fits =
            spec.output_hw(in_shape).is_some() && spec.weights_len(in_shape[0]).is_some_and(|len| len > 0);
        if fits { Ok(Self { text: text.into(), in_shape, spec }) } else { Err("no such layer".into()) }
    }
}

pub fn run(args: &Args) -> Result<()> {
    match &args.model {
        Some(model) => {
            let bundle = args.hide_for.apply(Bundle::read(model, kit::kit().operators())?)?;
            let network = &bundle.model.network;
            let plan = Plan::new(network, Choices::standard(network, args.backend))?;
            for layers in &plan.backends {
                say!("{}", layers.parameters(&|node| network.nodes[node].name.clone()));
            }
        }
        None => {
            if args.layer.is_empty() {
                bail!("a model or --layer");
            }
            let specs: Vec<Linear> =
                args.layer.iter().map(|layer| Linear { shift: args.shift, ..layer.spec.clone() }).collect();
            let requests: Vec<Request<'_>> = args
                .layer
                .iter()
                .zip(&specs)
                .enumerate()
                .map(|(node, (layer, spec))| Request {
                    node,
                    spec,
                    in_shape: layer.in_shape,
                    activation_bits: args.activation_bits,
                    guard_bits: 0,
                    weight_bits: args.weight_bits,
                    opened: false,
                    product_bits: args.activation_bits + args.shift,
                    packing: Default::default(),
                    images: 1,
                    ring: args.backend.backend().rings().first().copied().unwrap_or_default(),
                    backend: args.backend.name(),
                    weight_memory: WEIGHT_MEMORY,
                })
                .collect();
            let planned = args.backend.backend().plan(&requests);
            let layers = planned.map_err(|(at, e)| (e, format!("--layer {}", args.layer[at].text)));
            let layers =
                layers.map_err(|(e, layer)| anyhow::Error::new(e).context(layer)).context("no parameters")?;
            say!("{}", layers.parameters(&|node| args.layer[node].text.clone()));
        }
    }
    Ok(())
}
