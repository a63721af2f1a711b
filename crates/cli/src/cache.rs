//! Where a client keeps its hint between runs.

use std::path::PathBuf;
use std::time::Duration;

use jaguar::hint::HintPlace;
use jaguar::machine::store;

/// How long another process that fetches the same hint is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to say where no folder is known.
pub const NO_CACHE: &str =
    "no cache folder is known (neither HOME nor XDG_CACHE_HOME is set; --cache names one)";

/// `--cache` and `--no-cache`
#[derive(clap::Args)]
pub struct Cache {
    /// Where the hint is kept between runs (default: the user's cache folder).
    #[arg(long, help_heading = "Files", value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Keep nothing: the hint is fetched for this run alone, and held in memory.
    #[arg(long, help_heading = "Files", hide = true, conflicts_with = "cache")]
    no_cache: bool,
}

impl Cache {
    /// The folder: the named one, or the user's. None if there is none, or nothing is to be kept.
    pub fn folder(&self) -> Option<PathBuf> {
        if self.no_cache { None } else { store::cache(self.cache.as_deref()) }
    }

    /// Where the hint is kept; `warn` is told if it cannot be where it was to be.
    pub fn place(&self, warn: impl FnOnce(&str)) -> HintPlace {
        match self.folder() {
            Some(folder) => HintPlace::FolderOrMemory(folder, PATIENCE),
            None => {
                if !self.no_cache {
                    warn(&format!("{NO_CACHE}; the hint is kept in memory for this run"));
                }
                HintPlace::Memory
            }
        }
    }
}
