//! Blocks of weights, as a model's metadata names them: `docs/circulant.md` has the format.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::ImportError;
use crate::float::{Graph, Linear, Node};
use crate::network::{BLOCK_SIZES, BlockKind, Blocks};
use crate::onnx::{ModelProto, NodeProto};

/// The metadata's key.
const KEY: &str = "jaguar.blocks";

/// Entries of a block may differ by so much of the layer's largest weight: what single precision makes of a training's last
/// product, many times over.
const TOLERANCE: f32 = 1e-5;

/// What the metadata says of one layer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    b: usize,
    kind: BlockKind,
}

/// Blocks by the name of a weight tensor or of an ONNX node.
#[derive(Clone, Default)]
pub(super) struct Named {
    blocks: BTreeMap<String, Option<Blocks>>,
    used: BTreeSet<String>,
}

impl Named {
    /// Those of a model; none where its metadata has no such key.
    pub(super) fn read(model: &ModelProto) -> Result<Self, ImportError> {
        let mut entries = model.metadata_props.iter().filter(|entry| entry.key() == KEY);
        let Some(entry) = entries.next() else { return Ok(Self::default()) };
        if entries.next().is_some() {
            return Err(ImportError::Metadata("is there twice".into()));
        }
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(entry.value()).map_err(|e| ImportError::Metadata(e.to_string()))?;
        let sound = |(name, Entry { b, kind }): (String, Entry)| match b {
            1 => Ok((name, None)),
            size if BLOCK_SIZES.contains(&size) => Ok((name, Some(Blocks { size, kind }))),
            _ => Err(ImportError::Metadata(format!(
                "gives {name:?} blocks of {b}; 1, 2, 4, 8 and 16 are taken"
            ))),
        };
        let blocks = entries.into_iter().map(sound).collect::<Result<_, _>>()?;
        Ok(Self { blocks, used: BTreeSet::new() })
    }

    /// Gives the layer among `made`, the nodes that ONNX node `proto` became, its blocks, and checks that it has them.
    pub(super) fn give(&mut self, proto: &NodeProto, made: &mut [Node]) -> Result<(), ImportError> {
        if !matches!(proto.op_type(), "Conv" | "Gemm" | "MatMul") {
            return Ok(());
        }
        let tensor = proto.input.get(1).map(String::as_str);
        let names = [tensor, Some(proto.name())];
        let found: Vec<_> =
            names.into_iter().flatten().filter_map(|name| self.blocks.get_key_value(name)).collect();
        let Some(&(_, &blocks)) = found.first() else { return Ok(()) };
        self.used.extend(found.iter().map(|(name, _)| (*name).clone()));
        for node in made {
            let Some(linear) = node.op.linear_mut() else { continue };
            let refuse = |problem: String| ImportError::Blocks { layer: node.name.clone(), problem };
            if found.iter().any(|(_, other)| **other != blocks) {
                return Err(refuse("its weight tensor and its node are given different blocks".into()));
            }
            let Some(blocks) = blocks else { continue };
            let in_channels = in_channels(linear);
            if !blocks.fit(&linear.spec, in_channels) {
                let (groups, channels) = (linear.spec.groups, linear.spec.out_channels);
                return Err(refuse(format!(
                    "it cannot have {blocks}: it has {groups} groups, {in_channels} channels in and {channels} out; \
                     one group and multiples of {} are needed",
                    blocks.size
                )));
            }
            linear.spec.blocks = Some(blocks);
            settle(linear, blocks).map_err(|place| {
                refuse(format!(
                    "its weights have no {blocks}: {place} is not what its block's first column says"
                ))
            })?;
        }
        Ok(())
    }

    /// After all nodes.
    pub(super) fn finish(&self) -> Result<(), ImportError> {
        match self.blocks.keys().find(|name| !self.used.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(ImportError::Metadata(format!(
                "names {name:?}: no Conv, Gemm or MatMul that the outputs depend on has this name or takes such weights"
            ))),
        }
    }
}

/// Checks that all blocks are still there, now that everything is folded, and makes them exact.
pub(super) fn check_folded(graph: &mut Graph) -> Result<(), ImportError> {
    for node in &mut graph.nodes {
        let Some(linear) = node.op.linear_mut() else { continue };
        let Some(blocks) = linear.spec.blocks else { continue };
        settle(linear, blocks).map_err(|place| ImportError::Blocks {
            layer: node.name.clone(),
            problem: format!(
                "its weights lose their {blocks} in what is folded into them: {place} is not what its block's first column \
                 says. A batch normalisation (or any factor by channel) keeps blocks only where its factor, γ/√(σ² + ε), is \
                 the same for all {} channels of a block",
                blocks.size
            ),
        })?;
    }
    Ok(())
}

/// Whether weights keep blocks when each input channel is multiplied by its factor: where the factors of a block are one, up
/// to rounding.
pub(super) fn are_kept(blocks: Blocks, factors: &[f32]) -> bool {
    let largest = factors.iter().fold(0f32, |m, factor| m.max(factor.abs()));
    let same = |of: &[f32]| of.iter().all(|factor| (factor - of[0]).abs() <= largest * TOLERANCE);
    factors.chunks(blocks.size).all(same)
}

/// Input channels of a layer of one group; of others, those of a group.
fn in_channels(linear: &Linear) -> usize {
    linear.weights.len() / linear.spec.out_channels / (linear.spec.kernel[0] * linear.spec.kernel[1])
}

/// In words, the first place that is off by more than rounding.
fn settle(linear: &mut Linear, blocks: Blocks) -> Result<(), String> {
    let largest = linear.weights.iter().fold(0f32, |m, w| m.max(w.abs()));
    let channels = in_channels(linear);
    let settled = blocks.settle(&mut linear.weights, channels, linear.spec.kernel, largest * TOLERANCE);
    settled.map_err(|entry| {
        let (found, from) = (linear.weights[entry.at], linear.weights[entry.from]);
        let (sign, row) =
            (if entry.negative { "-" } else { "" }, linear.weights.len() / linear.spec.out_channels);
        format!("{entry} ({found}; of output channel {} follows {sign}({from}))", entry.from / row)
    })
}
