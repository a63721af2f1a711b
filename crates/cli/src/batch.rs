//! Batches: queries of several images.

use std::path::PathBuf;

use anyhow::Result;
use jaguar_graph::network::Network;
use jaguar_plan::memory::{Load, memory};
use jaguar_plan::{Allowed, BackendId, Choices, MOST_IMAGES, Plan, batch};
use jaguar_profile::memory::room;
use jaguar_terminal::table::bytes;
use serde::Serialize;

/// A number of images that a query may have.
pub fn size(text: &str) -> Result<u32, String> {
    let images = text.parse::<u32>().ok().filter(|n| n.is_power_of_two() && *n <= MOST_IMAGES);
    images.ok_or_else(|| format!("a power of two up to {MOST_IMAGES} is possible"))
}

/// The plans of batches of up to `most` images that fit this machine's memory at the server beside that of `single` images. What does not
/// fit is told on standard error.
///
/// # Errors
/// When there is no plan for batches.
pub fn plans_to_serve(
    network: &Network,
    single: &Plan,
    among: &[BackendId],
    most: u32,
    (allowed, load): (Allowed, Load),
) -> Result<Vec<Plan>> {
    let room = room();
    let mut plans = Vec::new();
    // Every size has weights of its own.
    let mut models = memory(network, single, load).server.model;
    for images in (1..).map(|log| 1u32 << log).take_while(|&images| images <= most) {
        let plan = batch::plan(network, &single.choices, among, images, allowed)?;
        let needs = memory(network, &plan, load).server;
        let total = models.saturating_add(needs.total());
        if let Some(room) = room.filter(|room| total > room.bytes) {
            eprintln!(
                "warning: batches of {images} images would take about {} at the server's fullest, and {} are {}: --max-batch {}",
                bytes(total),
                bytes(room.bytes),
                room.bound.words(),
                images / 2
            );
            break;
        }
        models = models.saturating_add(needs.model);
        plans.push(plan);
    }
    Ok(plans)
}

/// Why a client's batch does not fit this machine's memory, and what would; none if it does.
pub fn too_large(network: &Network, plan: &Plan, allowed: Allowed, load: Load) -> Option<String> {
    let images = plan.choices.images;
    let total = |plan: &Plan| memory(network, plan, load).client.total();
    let room = room().filter(|room| images > 1 && total(plan) > room.bytes)?;
    let fits = |&size: &u32| {
        let smaller: Result<Plan, _> =
            Plan::allowing(network, Choices::of_images(plan.choices.clone(), size), allowed);
        smaller.is_ok_and(|plan| total(&plan) <= room.bytes)
    };
    let smaller = std::iter::successors(Some(images / 2), |size| Some(size / 2)).take_while(|&size| size > 0);
    let largest = smaller.into_iter().find(fits);
    let largest = largest.map_or("not even one image fits".into(), |size| {
        format!("the largest batch that fits has {size} (--batch {size})")
    });
    Some(format!(
        "a batch of {images} images takes about {} here, and {} are {}: {largest}",
        bytes(total(plan)),
        bytes(room.bytes),
        room.bound.words()
    ))
}

/// Inputs as a query of `images` images takes them, one after the other. Zeros fill it up.
pub fn together(inputs: &[(PathBuf, Vec<i64>)], images: usize) -> Vec<i64> {
    let each = inputs.first().map_or(0, |(_, input)| input.len());
    let mut all: Vec<i64> = inputs.iter().flat_map(|(_, input)| input).copied().collect();
    all.resize(each * images, 0);
    all
}

/// How an answer shares its query, and its query's cost.
#[derive(Clone, Copy, Serialize)]
pub struct Shared {
    /// How many images a query has.
    pub images: usize,
    /// How many of them were inputs; the others were zeros.
    pub inputs: usize,
    /// Which of them this one was, from 0.
    pub index: usize,
}

impl Shared {
    /// Whether the query has no further answer.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, images) in [("1", Some(1)), ("16", Some(16)), ("64", Some(64)), ("0", None), ("3", None)] {
            assert_eq!(size(text).ok(), images, "{text}");
        }
        for text in ["128", "-1", "4294967296", "", "two"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_batch_is_filled_up_with_zeros() {
        let inputs: Vec<(PathBuf, Vec<i64>)> =
            vec![("a".into(), vec![1, 2]), ("b".into(), vec![3, 4]), ("c".into(), vec![5, 6])];
        assert_eq!(together(&inputs, 4), [1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(together(&inputs[..1], 1), [1, 2]);
    }
}
