//! How this process reads the clock.

use corelocal::clock::{self, Backend, Cause, Fence, Source, Unbounded};
use serde::Serialize;

/// The state of this process's clock after it has settled.
#[derive(Clone, Debug, Serialize)]
pub struct Clock {
    /// The back-end that serves.
    pub backend: Backend,
    /// The counter of that back-end.
    pub source: Source,
    /// The fence of ordered readings.
    pub fence: Option<Fence>,
    /// The reasons why better back-ends were given up, with the number of times.
    pub fallbacks: Vec<(Cause, u32)>,
    /// `CORELOCAL_CLOCK`, where it limits the choice.
    pub limit: Option<String>,
    /// Whether the realtime clock is synchronised. `None` if the kernel does not say.
    pub synchronised: Option<bool>,
}

impl Default for Clock {
    /// Returns the best there is.
    fn default() -> Clock {
        Clock {
            backend: Backend::KernelPage,
            source: Source::Tsc,
            fence: Some(Fence::Lfence),
            fallbacks: Vec::new(),
            limit: None,
            synchronised: Some(true),
        }
    }
}

impl Clock {
    /// Settles, and looks.
    pub fn look() -> Clock {
        clock::settle();
        let status = clock::status();
        let limit = std::env::var("CORELOCAL_CLOCK").unwrap_or_default();
        let limits = ["libc", "vdso", "anchor", "paravirtual"];
        Clock {
            backend: status.backend,
            source: status.source,
            fence: status.fence,
            fallbacks: status.fallbacks.iter().collect(),
            limit: Some(limit).filter(|limit| limits.contains(&limit.as_str())),
            synchronised: match clock::now_bounded() {
                Ok(_) => Some(true),
                Err(Unbounded::Untold(_)) => None,
                Err(_) => Some(false),
            },
        }
    }

    /// Returns why better back-ends were given up, in words.
    pub fn doubts(&self) -> Option<String> {
        let times = |count| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let doubts =
            self.fallbacks.iter().map(|(cause, count)| format!("{cause} ({})", times(*count)));
        let doubts: Vec<String> = doubts.collect();
        if doubts.is_empty() { None } else { Some(doubts.join("; ")) }
    }
}
