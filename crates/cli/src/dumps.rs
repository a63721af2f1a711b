//! What this process holds (keys, tokens, weights, inputs) stays out of core dumps.

/// Has the system write no core dump of this process, whoever would take it: a file, or a program that collects them. On Linux other
/// processes of this user can look into its memory no more (a debugger, say), unless they are root's.
#[cfg(unix)]
pub fn switch_off() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // (Where the system refuses, the commands still do what they are for.)
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// This system has no such dumps.
#[cfg(not(unix))]
pub fn switch_off() {}
