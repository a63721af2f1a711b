//! What a query of several images takes in the linear layers, beside as many queries of one: a part of the page about costs.

use jaguar_plan::Plan;
use jaguar_plan::batch::{self, Cost};

use crate::subject::Subject;
use crate::{ReportError, mib, thousands};

pub(crate) struct Batch {
    /// What linear layers send, in words.
    pub bytes: String,
    /// By layer, its name and its figures.
    pub layers: Vec<(String, Cells)>,
    pub all: Cells,
}

/// Images in a ciphertext; ciphertexts and responses, each with how full they are; the server's milliseconds for an image, and the
/// share of those of a single query. Each figure of the batch comes before that of single queries.
type Cells = [String; 12];

impl Batch {
    /// Of a plan beside the same plan of one image.
    pub(crate) fn new(of: &Subject<'_>) -> Result<Self, ReportError> {
        let Subject { network, plan, allowed, site, .. } = *of;
        let images = plan.images();
        let single = Plan::allowing(network, plan.choices.clone().of_images(1), allowed)?;
        let layers = batch::layers(network, &single, plan, site);
        let [one, many] = [
            batch::total(layers.iter().map(|layer| &layer.single)),
            batch::total(layers.iter().map(|layer| &layer.batch)),
        ];
        let keys = |plan: &Plan| plan.backends.iter().map(|layers| layers.query_bytes().0).sum::<usize>();
        let sent = |cost: &Cost, plan: &Plan, images: usize| mib(((cost.bytes + keys(plan)) / images) as u64);
        Ok(Self {
            bytes: format!(
                "Linear layers send {} MiB an image, keys of the query included; in a query of one image {} MiB.",
                sent(&many, plan, images),
                sent(&one, &single, 1),
            ),
            all: cells(String::new(), &one, &many, images),
            layers: layers
                .into_iter()
                .map(|l| (l.name, cells(l.interleaved.to_string(), &l.single, &l.batch, images)))
                .collect(),
        })
    }
}

fn cells(interleaved: String, single: &Cost, batch: &Cost, images: usize) -> Cells {
    let server = single.server_seconds.zip(batch.server_seconds).map(|(one, all)| [all / images as f64, one]);
    let millis = |at: usize| server.map_or_else(|| "–".into(), |s| format!("{:.3}", 1e3 * s[at]));
    let count = |n: usize| thousands(n as u64);
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    [
        interleaved,
        count(batch.ciphertexts),
        count(images * single.ciphertexts),
        percent(batch.ciphertexts_filled),
        percent(single.ciphertexts_filled),
        count(batch.responses),
        count(images * single.responses),
        percent(batch.responses_filled),
        percent(single.responses_filled),
        millis(0),
        millis(1),
        server.map_or_else(|| "–".into(), |[many, one]| percent(many / one)),
    ]
}
