//! `--hide-for`: for another number of queries than the model was compiled for, and what too few of them mean.

use anyhow::Result;
use jaguar::bundle::Bundle;
use jaguar::network::DEFAULT_HIDDEN_FOR;
use jaguar::reports::terminal::table::count;

/// For how many queries hidden values are hidden, in place of what the compiled model says.
#[derive(clap::Args)]
pub struct HideFor {
    /// Hide hidden values for so many queries of one image (default: as compiled).
    ///
    /// As `jaguar compile --hide-for`: 1 is faster, has no noise, and lets a client that repeats its queries learn hidden values and
    /// weights.
    #[arg(long, hide = true, value_name = "QUERIES", value_parser = parse_queries)]
    hide_for: Option<f64>,
}

impl HideFor {
    /// The bundle as it was asked for.
    pub fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        Ok(match self.hide_for {
            Some(queries) => bundle.hidden_for(queries)?,
            None => bundle,
        })
    }
}

/// A number of queries: 1 or more, also as 1e6.
pub fn parse_queries(text: &str) -> Result<f64, String> {
    let queries = text.parse().ok().filter(|queries: &f64| queries.is_finite() && *queries >= 1.0);
    queries.ok_or_else(|| "a number of queries, 1 or more, as 1000000 or 1e6".into())
}

/// What hides a model's hidden values, and for how long; what nothing hides.
pub fn describe(bundle: &Bundle) -> String {
    let (model, network) = (&bundle.model, &bundle.model.network);
    if network.noise_bits == 0 {
        return "nothing hides how hidden values are rounded: some 2000 queries for one image tell hidden values and weights \
                (docs/attacks.md, rounding coins)"
            .into();
    }
    let largest =
        network.output.scales.iter().map(|scale| network.noise_deviation() / scale).fold(0.0, f64::max);
    let up_to = if network.output.is_even() { "" } else { "up to " };
    let noise = format!(
        "answers get noise of {up_to}{largest:.2e} ({:.1} last places), and values have {} guard bits",
        network.hiding().noise_places(),
        network.guard_bits
    );
    match model.hidden_for() {
        Some(queries) => {
            format!("{noise}: hidden units stay hidden for {} queries of one image", shown(queries))
        }
        None => format!("{noise}; for how many queries that hides hidden units was not measured"),
    }
}

/// A number of queries in two digits or so.
fn shown(queries: f64) -> String {
    if queries < 1e7 { count(queries as u64) } else { format!("{queries:.1e}") }
}

/// What a server's operator must know of a model whose hidden values are hidden for fewer queries than by default; nothing of others.
pub fn caveat(bundle: &Bundle) -> Option<String> {
    let enough = |queries: f64| queries >= DEFAULT_HIDDEN_FOR;
    (!bundle.model.hidden_for().is_some_and(enough)).then(|| describe(bundle))
}
