//! Where waits are measured: on the standard library's clock; and in a WebAssembly module, where it has none, on that of who loaded
//! the module.

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use std::time::Instant;

#[cfg(target_arch = "wasm32")]
pub(crate) use host::Instant;

#[cfg(target_arch = "wasm32")]
mod host {
    use std::ops::{Add, Sub};
    use std::time::Duration;

    #[link(wasm_import_module = "jaguar")]
    unsafe extern "C" {
        /// Milliseconds since a moment of the host's choice; never fewer than before.
        safe fn now() -> f64;
    }

    /// As `std::time::Instant`, as far as it is used here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub fn now() -> Self {
            Self(Duration::try_from_secs_f64(now() / 1e3).unwrap_or_default())
        }

        pub fn elapsed(&self) -> Duration {
            Self::now() - *self
        }

        pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
            *self - earlier
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }
}
