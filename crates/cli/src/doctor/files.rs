//! The cache folder, the disk under it, keys, certificates and tokens.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jaguar::net::tls::{self, Certificate};
use jaguar::net::{Exposed, Token, TokenFile};
use jaguar::reports::terminal::table::bytes;

use super::date::{DAY, day, seconds};
use super::{Cache, Findings};
use crate::kit::ONE_ROUND;
use crate::reach::Trust;

/// A certificate that ends sooner than so is spoken of.
const SOON: i64 = 21 * DAY;

/// Below so much, hints of larger networks do not fit.
const LITTLE_DISK: u64 = 1 << 30;

pub(super) fn look(
    cache: &Cache<'_>,
    trust: &Trust,
    certificate: Option<(&Path, &Path)>,
    tokens: Option<&Path>,
    findings: &mut Findings,
) {
    folder(cache, findings);
    let Cache(cache) = cache;
    let mut secrets = Secrets::default();
    if let Some(cache) = cache {
        let (made, key) = (cache.join("tls/certificate.pem"), cache.join("tls/key.pem"));
        if made.exists() {
            pair("own certificate", &made, &key, findings);
        }
        secrets.server_keys.push(key);
        secrets.must.extend(ONE_ROUND.iter().flat_map(|protocol| protocol.secrets(cache)));
        secrets.must.extend(below(&cache.join("hints")));
    }
    if let Some((file, key)) = certificate {
        pair("certificate", file, key, findings);
        secrets.server_keys.push(key.to_owned());
    }
    if let Some(file) = trust.token_file() {
        match Token::read(file) {
            Ok(_) => findings.ok("token", file.display().to_string()),
            // It is told below, with all secrets.
            Err(_) if Exposed::of(file).is_ok_and(|exposed| exposed.is_some()) => {}
            Err(e) => {
                findings.fail("token", e.to_string(), "ask the server's operator for one (jaguar token NAME)")
            }
        }
    }
    secrets.must.extend(trust.secrets().map(Path::to_owned));
    if let Some(file) = tokens {
        match TokenFile::open(file) {
            Ok(_) => findings.ok("tokens", file.display().to_string()),
            Err(e) => {
                findings.fail("tokens", e.to_string(), "jaguar token NAME --tokens FILE makes and fills it")
            }
        }
        secrets.should.push(file.to_owned());
    }
    secrets.look(findings);
}

/// Whether the cache folder can be written, and what the disk under it has.
fn folder(Cache(cache): &Cache<'_>, findings: &mut Findings) {
    let elsewhere = "name another with --cache FOLDER, or give its owner the right to write; clients can do without \
                     (predict --no-cache), and then fetch the hint every time";
    let Some(cache) = cache else {
        let found = "no folder is known: neither HOME nor XDG_CACHE_HOME is set";
        findings.warn("cache", found, "name one with --cache FOLDER");
        return;
    };
    // What is not there yet is made where it is first needed: then the folder above counts.
    let Some(there) = cache.ancestors().find(|folder| folder.exists()) else {
        findings.fail("cache", format!("{}: nothing of it is there", cache.display()), elsewhere);
        return;
    };
    let probe = there.join(format!(".jaguar-doctor-{}", std::process::id()));
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&probe);
    let written = written.and_then(|_| fs::remove_file(&probe));
    match written {
        Err(e) => findings.fail("cache", format!("{}: cannot be written ({e})", cache.display()), elsewhere),
        Ok(()) if there == *cache => findings.ok("cache", cache.display().to_string()),
        Ok(()) => findings.ok("cache", format!("{} (will be made)", cache.display())),
    }
    if let Some(free) = free(there) {
        let found = format!("{} are free for {}", bytes(free), cache.display());
        if free < LITTLE_DISK {
            let advice = "make room, or name another folder with --cache; a hint has up to some hundred MB, and the keys of \
                          one-round clients more (--key-storage)";
            findings.warn("disk", found, advice);
        } else {
            findings.ok("disk", found);
        }
    }
}

/// Bytes that this user may still write below a folder, where the system tells.
#[cfg(unix)]
pub(super) fn free(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let system = rustix::fs::statvfs(there).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

#[cfg(not(unix))]
pub(super) fn free(_: &Path) -> Option<u64> {
    None
}

/// What is in a folder; nothing if it cannot be read.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

/// A server's certificate and its key.
fn pair(check: &'static str, file: &Path, key: &Path, findings: &mut Findings) {
    let advice = "name a certificate and its own key, both PEM; the one that a server makes for itself is made anew if tls/ in \
                  the cache folder is removed (its fingerprint changes)";
    // (A key that others may use is told with all secrets.)
    let exposed = Exposed::of_server_key(key).is_ok_and(|exposed| exposed.is_some());
    if let (Err(e), false) = (tls::Server::from_files(file, key, None), exposed) {
        findings.fail(check, e.to_string(), advice);
        return;
    }
    match Certificate::read(file) {
        Err(e) => findings.fail(check, e.to_string(), advice),
        Ok(certificate) => {
            let renew = "renew it, and start the server anew";
            validity(check, &certificate, &file.display().to_string(), renew, findings);
        }
    }
}

/// Whether the certificate of `whose` is valid today, by this machine's clock.
pub(super) fn validity(
    check: &'static str,
    certificate: &Certificate,
    whose: &str,
    renew: &str,
    findings: &mut Findings,
) {
    let now = seconds(SystemTime::now());
    let Certificate { fingerprint, names, from, until, .. } = certificate;
    let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
    let found = format!("{whose}: for {names}; {} to {}; fingerprint {fingerprint}", day(*from), day(*until));
    if now < *from {
        findings.fail(check, format!("not valid yet: {found}"), format!("look at the clock, or {renew}"));
    } else if now > *until {
        findings.fail(
            check,
            format!("not valid any more: {found}"),
            format!("{renew}, or look at the clock"),
        );
    } else if until - now < SOON {
        findings.warn(check, format!("{} days left: {found}", (until - now) / DAY), renew);
    } else {
        findings.ok(check, found);
    }
}

/// Files that only their owner may read.
#[derive(Default)]
struct Secrets {
    /// Who reads them has what they protect.
    must: Vec<PathBuf>,
    /// The same, but that a group may read what is root's.
    server_keys: Vec<PathBuf>,
    /// Who reads them has names, and who changes them lets others in.
    should: Vec<PathBuf>,
}

impl Secrets {
    #[cfg(unix)]
    fn look(&self, findings: &mut Findings) {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &PathBuf| Some(fs::metadata(path).ok()?.permissions().mode() & 0o777);
        let with_modes = |paths: &'_ [PathBuf]| -> Vec<(PathBuf, u32)> {
            paths.iter().filter_map(|path| Some((path.clone(), mode(path)?))).collect()
        };
        let mut sound = 0;
        let advice = Exposed::advice;
        let must = self.must.iter().map(|path| (path, Exposed::of(path)));
        let keys = self.server_keys.iter().map(|path| (path, Exposed::of_server_key(path)));
        for (path, exposed) in must.chain(keys) {
            // (What is not there is told elsewhere.)
            match exposed {
                Err(_) => {}
                Ok(None) => sound += 1,
                Ok(Some(exposed)) => {
                    findings.fail("secrets", format!("{}: {exposed}", path.display()), advice(path));
                }
            }
        }
        for (path, mode) in with_modes(&self.should) {
            if mode & 0o022 != 0 {
                let found = format!("{}: others may change it (mode {mode:o})", path.display());
                findings.fail("secrets", found, advice(&path));
            } else if mode & 0o044 != 0 {
                let found = format!("{}: others may read it (mode {mode:o})", path.display());
                findings.warn("secrets", found, advice(&path));
            } else {
                sound += 1;
            }
        }
        match sound {
            0 => {}
            1 => findings.ok("secrets", "one file, for its owner alone"),
            n => findings.ok("secrets", format!("{n} files, for their owner alone")),
        }
    }

    #[cfg(not(unix))]
    fn look(&self, _: &mut Findings) {
        let _ = (&self.must, &self.server_keys, &self.should);
    }
}
