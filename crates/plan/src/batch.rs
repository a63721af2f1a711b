//! Queries of several images: what is chosen for them, and what their linear layers cost beside those of as many queries of one.

use jaguar_graph::network::{Network, elements};
use jaguar_linear::backend::{Planned, Work};
use serde::Serialize;

use crate::memory::{Load, Room, memory};
use crate::predict::Site;
use crate::{Allowed, BackendId, Choices, MOST_IMAGES, Plan, PlanError};

/// Whether a query may have so many images: a power of two, at most [`MOST_IMAGES`].
pub fn is_size(images: u32) -> bool {
    images.is_power_of_two() && images <= MOST_IMAGES
}

/// The plan for queries of `images` images, a power of two, beside `single`, what was chosen for one: all is the same, but that all linear
/// layers have the first of the allowed backends that takes batches.
///
/// # Errors
/// When none `among` those that may run layers takes batches, or there is no such plan.
pub fn plan(
    network: &Network,
    single: &Choices,
    among: &[BackendId],
    images: u32,
    allowed: Allowed,
) -> Result<Plan, PlanError> {
    if images == 1 {
        return Plan::allowing(network, single.clone(), allowed);
    }
    let taker = among.iter().copied().find(|id| id.backend().takes_batches());
    let taker = taker
        .ok_or_else(|| PlanError::Choices("none of the allowed backends takes batches of images".into()))?;
    let backends = vec![taker; network.nodes.len()];
    Plan::allowing(network, Choices { backends, ..single.clone() }.of_images(images), allowed)
}

/// A batch that does not fit a machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// How many images the batch has.
    pub images: u32,
    /// Bytes that the party would take with it at its fullest.
    pub bytes: u64,
    /// What a program may take on this machine.
    pub room: Room,
    /// The largest batch that fits; none where not even one image does.
    pub fits: Option<u32>,
}

/// The plans of batches of 2, 4, ... up to `most` images that fit `room` at the server, beside the models that it has for `single` images
/// and for smaller batches; and the first that does not. Where `room` is not known, all fit.
///
/// # Errors
/// When there is no plan for batches.
pub fn plans_that_fit(
    network: &Network,
    single: &Plan,
    among: &[BackendId],
    most: u32,
    (allowed, load, room): (Allowed, Load, Option<Room>),
) -> Result<(Vec<Plan>, Option<TooLarge>), PlanError> {
    let mut plans = Vec::new();
    // Every size has weights of its own.
    let mut models = memory(network, single, load).server.model;
    for images in (1..).map(|log| 1u32 << log).take_while(|&images| images <= most) {
        let plan = plan(network, &single.choices, among, images, allowed)?;
        let needs = memory(network, &plan, load).server;
        let bytes = models.saturating_add(needs.total());
        if let Some(room) = room.filter(|room| bytes > room.bytes) {
            return Ok((plans, Some(TooLarge { images, bytes, room, fits: Some(images / 2) })));
        }
        models = models.saturating_add(needs.model);
        plans.push(plan);
    }
    Ok((plans, None))
}

/// Whether the queries of `plan`, a batch, are too large for a client that has `room`.
pub fn too_large(
    network: &Network,
    plan: &Plan,
    allowed: Allowed,
    load: Load,
    room: Room,
) -> Option<TooLarge> {
    let images = plan.choices.images;
    let total = |plan: &Plan| memory(network, plan, load).client.total();
    let bytes = total(plan);
    if images == 1 || bytes <= room.bytes {
        return None;
    }
    let fits = |&size: &u32| {
        let smaller = Plan::allowing(network, plan.choices.clone().of_images(size), allowed);
        smaller.is_ok_and(|plan| total(&plan) <= room.bytes)
    };
    let mut smaller =
        std::iter::successors(Some(images / 2), |size| Some(size / 2)).take_while(|&size| size > 0);
    Some(TooLarge { images, bytes, room, fits: smaller.find(fits) })
}

/// How full ciphertexts are, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Ciphertexts that the client sends for a query.
    pub ciphertexts: usize,
    /// Of their coefficients, the share that holds input values.
    pub ciphertexts_filled: f64,
    /// Response ciphertexts of a query.
    pub responses: usize,
    /// Of their coefficients, the share that holds outputs.
    pub responses_filled: f64,
    /// Bytes that the client sends for a query.
    pub bytes: usize,
    /// Bytes of the hint, which a client fetches once.
    pub hint_bytes: usize,
    /// Seconds of one core of the client, before the input and with it.
    pub client_seconds: Option<f64>,
    /// Of these of the server.
    pub server_seconds: Option<f64>,
}

/// A linear layer in a batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchedLayer {
    /// The node's number in the network.
    pub node: usize,
    /// What the network calls the node.
    pub name: String,
    /// How many images share a ciphertext.
    pub interleaved: usize,
    /// A query of one image.
    pub single: Cost,
    /// A query of all images.
    pub batch: Cost,
}

/// All linear layers, in `single` and in `batch`, two plans of `network` with one backend.
pub fn layers(network: &Network, single: &Plan, batch: &Plan, site: Option<&Site<'_>>) -> Vec<BatchedLayer> {
    let images = batch.images();
    let pairs = single.steps.iter().zip(&batch.steps).enumerate();
    let linear = pairs.filter_map(|(node, (single, batch))| Some((node, single.layer.as_ref()?, batch)));
    linear
        .map(|(node, one, step)| {
            let many = step.layer.as_ref().expect("the same network");
            let values = [network.nodes[network.nodes[node].inputs[0]].shape, network.nodes[node].shape]
                .map(|shape| elements(shape).unwrap_or(0));
            let name = network.nodes[node].name.clone();
            let interleaved = many.geometry().interleaved;
            let single = cost(one, values, site);
            BatchedLayer {
                node,
                name,
                interleaved,
                single,
                batch: cost(many, values.map(|v| v * images), site),
            }
        })
        .collect()
}

/// The sum over all layers; shares are of all coefficients.
pub fn total<'a>(costs: impl Iterator<Item = &'a Cost>) -> Cost {
    let zero = Cost { client_seconds: Some(0.0), server_seconds: Some(0.0), ..Cost::default() };
    let share = |a: f64, of: usize, b: f64, and: usize| {
        if of + and == 0 { 0.0 } else { (a * of as f64 + b * and as f64) / (of + and) as f64 }
    };
    costs.fold(zero, |sum, cost| Cost {
        ciphertexts: sum.ciphertexts + cost.ciphertexts,
        ciphertexts_filled: share(
            sum.ciphertexts_filled,
            sum.ciphertexts,
            cost.ciphertexts_filled,
            cost.ciphertexts,
        ),
        responses: sum.responses + cost.responses,
        responses_filled: share(sum.responses_filled, sum.responses, cost.responses_filled, cost.responses),
        bytes: sum.bytes + cost.bytes,
        hint_bytes: sum.hint_bytes + cost.hint_bytes,
        client_seconds: sum.client_seconds.zip(cost.client_seconds).map(|(a, b)| a + b),
        server_seconds: sum.server_seconds.zip(cost.server_seconds).map(|(a, b)| a + b),
    })
}

fn cost(layer: &Planned, [inputs, outputs]: [usize; 2], site: Option<&Site<'_>>) -> Cost {
    let (geometry, traffic) = (layer.geometry(), layer.traffic());
    let filled = |values: usize, of: usize| values as f64 / (of * geometry.ring_dim).max(1) as f64;
    let seconds = |of: &dyn Fn(Work) -> f64| Some(of(layer.work(&site?.machine.linear)?));
    let of_party = |role: usize| {
        seconds(&|work: Work| work.offline[role] + work.online[role] + work.online_parallel[role])
    };
    Cost {
        ciphertexts: geometry.ciphertexts,
        ciphertexts_filled: filled(inputs, geometry.ciphertexts),
        responses: geometry.responses,
        responses_filled: filled(outputs, geometry.responses),
        bytes: traffic.offline.0 + traffic.online.0,
        hint_bytes: traffic.hint,
        client_seconds: of_party(0),
        server_seconds: of_party(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kit;
    use crate::machine::tests::round_figures;
    use crate::machine::{Link, Placement};
    use crate::predict::{Aim, predict};
    use crate::tests::network;

    fn standard(network: &Network) -> Plan {
        Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap()
    }

    fn of_images(network: &Network, images: u32) -> Result<Plan, PlanError> {
        let single = standard(network);
        plan(network, &single.choices, &[Kit::JAGUAR], images, Allowed::default())
    }

    #[test]
    fn a_batch_by_hand() {
        let network = network();
        let single = standard(&network);
        let batch = of_images(&network, 16).unwrap();
        let machine = round_figures();
        let link = Link { bytes_per_second: 1e18, round_trip: 0.0 };
        let site = Site { machine: &machine, link, placement: Placement::Apart, aim: Aim::Query };
        let layers = layers(&network, &single, &batch, Some(&site));
        assert_eq!(layers.iter().map(|layer| &*layer.name).collect::<Vec<_>>(), ["first", "second", "last"]);
        // 28 x 28 with a kernel of three: 841 of 1024 places, in two images. 14 x 14: 196 of 256, in eight; or tiles. The last has a
        // kernel of 14 x 14 over the map.
        let found: Vec<_> = layers.iter().map(|layer| (layer.interleaved, layer.batch.responses)).collect();
        assert_eq!((found[0], found[2]), ((2, 8 * 16), (8, 2 * 10)));
        for layer in &layers {
            assert!(layer.batch.responses < 16 * layer.single.responses);
            assert!(layer.batch.responses_filled > layer.single.responses_filled);
            assert!(layer.batch.responses_filled <= 1.0 && layer.batch.ciphertexts_filled <= 1.0);
            assert!(layer.batch.server_seconds < layer.single.server_seconds.map(|s| 16.0 * s));
        }
        let all = total(layers.iter().map(|layer| &layer.batch));
        assert_eq!(all.responses, batch.responses());
        assert_eq!(all.hint_bytes, batch.hint_bytes());
        assert!(all.responses_filled > 0.0 && all.responses_filled < 1.0);
        // Rounds are those of one image, values sixteen times as many.
        let rounds = |plan: &Plan| predict(plan, &Default::default(), None).online.rounds;
        assert_eq!(rounds(&batch), rounds(&single));
        assert!(batch.steps.iter().zip(&single.steps).all(|(b, s)| b.values == 16 * s.values));
        assert_ne!(batch.digest(), single.digest());
        assert_ne!(batch.hint_digest(), single.hint_digest());
    }

    /// A batch of one is what there was without batches.
    #[test]
    fn a_batch_of_one_is_the_plan_itself() {
        let network = network();
        let [one, single] = [of_images(&network, 1).unwrap(), standard(&network)];
        assert_eq!((one.digest(), one.hint_digest()), (single.digest(), single.hint_digest()));
    }

    /// Rooms of exactly what is needed, and of a byte less.
    #[test]
    fn what_does_not_fit_is_told_with_what_does() {
        use crate::memory::Bound;
        let (network, allowed) = (network(), Allowed::default());
        let (single, load) = (standard(&network), Load::single(2));
        let room = |bytes| Room { bytes, bound: Bound::Machine };
        let batch = |images| of_images(&network, images).unwrap();

        let client = |images| memory(&network, &batch(images), load).client.total();
        let told = |bytes| too_large(&network, &batch(16), allowed, load, room(bytes));
        assert_eq!(told(client(16)), None);
        let less = TooLarge { images: 16, bytes: client(16), room: room(client(16) - 1), fits: Some(8) };
        assert_eq!(told(client(16) - 1), Some(less));
        assert_eq!(told(client(2)).unwrap().fits, Some(2));
        assert_eq!(told(client(1) - 1).unwrap().fits, None);
        assert_eq!(too_large(&network, &single, allowed, load, room(0)), None, "one image is no batch");

        let among = [Kit::JAGUAR];
        let plans = |room| plans_that_fit(&network, &single, &among, 8, (allowed, load, room)).unwrap();
        let sizes = |plans: &[Plan]| plans.iter().map(|plan| plan.choices.images).collect::<Vec<_>>();
        let (all, left_out) = plans(None);
        assert_eq!((sizes(&all), left_out), (vec![2, 4, 8], None));
        let server = |images| memory(&network, &batch(images), load).server;
        let needed = [1, 2, 4].map(|images| server(images).model).iter().sum::<u64>() + server(8).total();
        assert_eq!(plans(Some(room(needed))).1, None);
        let (some, left_out) = plans(Some(room(needed - 1)));
        let first = TooLarge { images: 8, bytes: needed, room: room(needed - 1), fits: Some(4) };
        assert_eq!((sizes(&some), left_out), (vec![2, 4], Some(first)));
    }

    #[test]
    fn other_sizes_and_backends_are_refused() {
        let network = network();
        for images in [0, 3, 12, 128, u32::MAX] {
            let error = of_images(&network, images).unwrap_err().to_string();
            assert!(error.contains("a power of two up to 64"), "{error}");
        }
        let single = standard(&network);
        let error = plan(&network, &single.choices, &[Kit::CHEETAH], 2, Allowed::default());
        assert!(error.unwrap_err().to_string().contains("takes batches of images"));
        let other = Choices::standard(&network, Kit::CHEETAH).of_images(2);
        assert!(Plan::new(&network, other).unwrap_err().to_string().contains("takes no batches"));
    }
}
