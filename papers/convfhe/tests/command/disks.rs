//! Disks that are really full: a small file system in memory, where one may be mounted.

use super::*;

/// Whether this process may mount a file system that only its children see.
fn may_mount(folder: &str) -> bool {
    let mount = ["--mount", "--map-root-user", "mount", "-t", "tmpfs", "-o", "size=1m", "jaguar", folder];
    match Command::new("unshare").args(mount).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("skip: no file system can be mounted: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(e) => {
            println!("skip: unshare is not there to mount a file system ({e})");
            false
        }
    }
}

#[test]
fn a_full_file_system_is_told() {
    let it = Site::new("tmpfs");
    let folder = it.scratch.path("server");
    std::fs::create_dir(&folder).unwrap();
    if !may_mount(&folder) {
        return;
    }
    // Too small for the keys; large enough for them, but not for an input behind them.
    let pages = KEYS.div_ceil(4096);
    for (kilobytes, lost, kept) in [(2 * pages, "the keys were", 0), (4 * (pages + 1), "the input was", 1)] {
        let mount = format!("mount -t tmpfs -o size={kilobytes}k jaguar \"$0\" && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            &mount,
            &folder,
            env!("CARGO_BIN_EXE_jaguar"),
        ]);
        command.args(["serve", &it.model, "--listen", "127.0.0.1:0", "--protocol", "convfhe"]);
        command.args(["--key-dir", &folder]);
        let mut server = Process::start(command);
        let line = server.line_with("listening on ", WATCHDOG);
        let at = line.rsplit(' ').next().unwrap();
        let told = format!("the server's disk is full: {lost} not kept");
        for _ in 0..2 {
            assert_fails(it.predict(at, "client", &[&it.inputs[0]]), &[&told]);
        }
        server.line_with("the server's disk is full", WATCHDOG);
        // What the server sees.
        let inside = PathBuf::from(format!("/proc/{}/root{folder}/insecure-n10", server.id));
        let names = kept_in(&inside);
        assert_eq!(names.len(), kept, "{names:?}");
        assert_eq!(std::fs::read_dir(inside.join("queue")).unwrap().count(), 0);
    }
}
