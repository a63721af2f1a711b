//! What a batch of images costs in the linear layers, beside as many queries of one image, as text.

use std::fmt;

use crate::terminal::table::{bytes, count, plain, trimmed};
use jaguar_graph::network::Network;
use jaguar_plan::Plan;
use jaguar_plan::batch::{self, BatchedLayer, Cost, TooLarge};
use jaguar_plan::predict::Site;
use serde::Serialize;

/// A layer pays where a batch takes the server at most this share of as many single images.
const PAYS: f64 = 0.9;

/// Why a client's batch does not fit this machine, and what would. `option` is the one that sets it, up to its value.
pub fn too_large(found: &TooLarge, option: &str) -> String {
    let TooLarge { images, bytes: needed, room, fits } = found;
    let largest = fits.map_or("not even one image fits".into(), |size| {
        format!("the largest batch that fits has {size} ({option}{size})")
    });
    format!(
        "a batch of {images} images takes about {} here, and {} are {}: {largest}",
        bytes(*needed),
        bytes(room.bytes),
        room.bound.words()
    )
}

/// Why a server leaves out batches of some size, and what to ask for instead. `option` as in [`too_large`].
pub fn left_out(found: &TooLarge, option: &str) -> String {
    let TooLarge { images, bytes: needed, room, .. } = found;
    format!(
        "batches of {images} images would take about {} at the server's fullest, and {} are {}: {option}{}",
        bytes(*needed),
        bytes(room.bytes),
        room.bound.words(),
        images / 2
    )
}

/// The linear layers of a batch, as a person reads them (`Display`), and a program ([`Serialize`]).
#[derive(Debug, Serialize)]
pub(crate) struct BatchCosts {
    images: usize,
    layers: Vec<BatchedLayer>,
    /// All layers, in a query of one image and in one of all.
    single: Cost,
    batch: Cost,
    /// Bytes of query keys, once a query, of one image and of all.
    key_bytes: [usize; 2],
}

impl BatchCosts {
    /// Of `batch` beside `single`, two plans of `network`; seconds only if `site` says where they run.
    pub(crate) fn new(network: &Network, single: &Plan, batch: &Plan, site: Option<&Site<'_>>) -> Self {
        let layers = batch::layers(network, single, batch, site);
        let keys = |plan: &Plan| plan.backends.iter().map(|layers| layers.query_bytes().0).sum();
        Self {
            images: batch.images(),
            single: batch::total(layers.iter().map(|layer| &layer.single)),
            batch: batch::total(layers.iter().map(|layer| &layer.batch)),
            layers,
            key_bytes: [keys(single), keys(batch)],
        }
    }

    /// Of `cost`, what a single image takes the server, in milliseconds; and that as a share of what it takes by itself.
    fn server(&self, single: &Cost, batch: &Cost) -> Option<[f64; 3]> {
        let (one, many) = (single.server_seconds?, batch.server_seconds? / self.images as f64);
        Some([one * 1e3, many * 1e3, many / one])
    }
}

impl fmt::Display for BatchCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let images = self.images;
        let mut table = plain(
            &[
                "layer",
                "images/ct",
                "ciphertexts",
                "alone",
                "filled",
                "alone",
                "responses",
                "alone",
                "filled",
                "alone",
                "hint",
                "alone",
                "server ms",
                "alone",
                "share",
                "pays",
            ],
            1,
        );
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut row = |name: &str, interleaved: String, single: &Cost, batch: &Cost| {
            let server = self.server(single, batch);
            let time = |at: usize| server.map_or_else(|| "-".into(), |s| format!("{:.3}", s[at]));
            let counted = |n: usize| count(n as u64);
            table.add_row([
                name.to_owned(),
                interleaved,
                counted(batch.ciphertexts),
                counted(images * single.ciphertexts),
                percent(batch.ciphertexts_filled),
                percent(single.ciphertexts_filled),
                counted(batch.responses),
                counted(images * single.responses),
                percent(batch.responses_filled),
                percent(single.responses_filled),
                bytes(batch.hint_bytes as u64),
                bytes(single.hint_bytes as u64),
                time(1),
                time(0),
                server.map_or_else(|| "-".into(), |s| percent(s[2])),
                match server {
                    Some([.., share]) => if share <= PAYS { "yes" } else { "no" }.into(),
                    None => "-".into(),
                },
            ]);
        };
        for layer in &self.layers {
            row(&layer.name, layer.interleaved.to_string(), &layer.single, &layer.batch);
        }
        row("all", String::new(), &self.single, &self.batch);
        writeln!(
            f,
            "a batch of {images} images beside {images} queries of one (\"alone\"); server: one core, an image"
        )?;
        writeln!(f, "{}", trimmed(&table))?;
        write!(
            f,
            "linear layers send {} an image instead of {} ({} of query keys a batch)",
            bytes(((self.batch.bytes + self.key_bytes[1]) / images) as u64),
            bytes((self.single.bytes + self.key_bytes[0]) as u64),
            bytes(self.key_bytes[1] as u64),
        )
    }
}
