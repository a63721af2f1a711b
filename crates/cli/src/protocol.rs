//! `--backends`.

use jaguar_plan::BackendId;

/// What runs linear layers unless something else is asked for.
pub const DEFAULT: &str = "jaguar";

/// The backend of a name; none that protects nothing.
pub fn parse(name: &str) -> Result<BackendId, String> {
    let is_secure = |id: &BackendId| id.backend().is_secure();
    BackendId::of(name).filter(is_secure).ok_or_else(|| {
        let names = BackendId::all().filter(is_secure).map(BackendId::name).collect::<Vec<_>>();
        format!("there are {}", names.join(" and "))
    })
}
