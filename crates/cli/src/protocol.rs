//! `--backends`.

use jaguar_plan::BackendId;

/// What runs linear layers unless something else is asked for.
pub const DEFAULT: &str = "jaguar";

/// The backend of a name.
pub fn parse(name: &str) -> Result<BackendId, String> {
    BackendId::of(name).ok_or_else(|| {
        let names = BackendId::all().map(BackendId::name).collect::<Vec<_>>();
        format!("there are {}", names.join(" and "))
    })
}
