//! The models of this protocol by name.

use super::super::case::Entry;
use super::Read::*;
use super::{
    COUNTER_FIRST, PER_CPU, PER_CPU_ID_IN_VERSION, PER_CPU_ONE_GETCPU, Pvclock, STABLE_AFTER,
    STABLE_BEFORE, STABLE_INSIDE, WRITES, WRITES_2015, Write,
};

const TODAY: Pvclock = Pvclock {
    writes: WRITES,
    wait_for_all: false,
    adjusts: false,
    may_die: false,
    reader: STABLE_INSIDE,
    updates: 2,
};

/// Returns the models of this protocol.
pub(in crate::sim) fn entries() -> Vec<Entry> {
    let sibling = Some("with a counter read on a vCPU that has update");
    let torn = Some("with the scale of update");
    let unstable = Some("which is not STABLE");
    let page_0 = |reader| Pvclock { reader, wait_for_all: true, ..TODAY };
    vec![
        Entry::new(
            "pvclock/per-cpu",
            "the vDSO until 4.4 on the host of 2015: the page of the own vCPU, between two getcpu",
            None,
            Pvclock { writes: WRITES_2015, reader: PER_CPU, ..TODAY },
        ),
        Entry::new(
            "pvclock/per-cpu-today",
            "the same reader on a host that makes the version odd first",
            None,
            Pvclock { reader: PER_CPU, ..TODAY },
        ),
        Entry::new(
            "pvclock/page-0",
            "the vDSO since 4.5: page 0, STABLE read in the loop, on a host that lets no vCPU go before all are updated",
            None,
            page_0(STABLE_INSIDE),
        ),
        Entry::new(
            "pvclock/2015",
            "page 0 on the host of 2015, which changes the version once, at the end",
            torn,
            Pvclock { writes: WRITES_2015, adjusts: true, ..TODAY },
        ),
        Entry::new(
            "pvclock/page-0-adjusted",
            "page 0 on today's host, while the host only adjusts the clock",
            None,
            Pvclock { adjusts: true, ..TODAY },
        ),
        Entry::new(
            "pvclock/sibling-goes-first",
            "page 0 on today's host, which lets a vCPU go before page 0 is updated",
            sibling,
            TODAY,
        ),
        Entry::new(
            "pvclock/stable-before",
            "STABLE is tested before the loop",
            unstable,
            page_0(STABLE_BEFORE),
        ),
        Entry::new(
            "pvclock/stable-after",
            "STABLE is tested after the loop",
            unstable,
            page_0(STABLE_AFTER),
        ),
        Entry::new(
            "pvclock/one-getcpu",
            "the page of the own vCPU, without the second getcpu",
            sibling,
            Pvclock { reader: PER_CPU_ONE_GETCPU, ..TODAY },
        ),
        Entry::new(
            "pvclock/id-in-version",
            "the vCPU's id in the page's version in place of the second getcpu: it is the id of the page, not of the cpu",
            sibling,
            Pvclock { reader: PER_CPU_ID_IN_VERSION, ..TODAY },
        ),
        Entry::new(
            "pvclock/counter-first",
            "no read barrier: the counter is read before the version",
            Some("with a counter that was read before it"),
            page_0(COUNTER_FIRST),
        ),
        Entry::new(
            "pvclock/counter-first-adjusted",
            "the same while the host only adjusts the clock",
            Some("with a counter that was read before it"),
            Pvclock { reader: COUNTER_FIRST, adjusts: true, ..TODAY },
        ),
        Entry::new(
            "pvclock/fields-before-version",
            "no read barrier: the fields are read before the version",
            torn,
            page_0(&[Time, Version, Counter, Scale, Flags, SameVersion, ReturnIfStable]),
        ),
        Entry::new(
            "pvclock/version-before-fields",
            "no second read barrier: the version is compared before the last field is read",
            torn,
            page_0(&[Version, Counter, Time, Flags, SameVersion, Scale, ReturnIfStable]),
        ),
        Entry::new(
            "pvclock/odd-is-accepted",
            "the reader does not test for an odd version",
            torn,
            Pvclock {
                reader: &[
                    Version,
                    Counter,
                    Time,
                    Scale,
                    Flags,
                    SameVersionMaybeOdd,
                    ReturnIfStable,
                ],
                adjusts: true,
                ..TODAY
            },
        ),
        Entry::new(
            "pvclock/even-before-fields",
            "no write barrier: the version is even before the last field is written",
            torn,
            Pvclock {
                writes: &[Write::Odd, Write::Time, Write::Flags, Write::Even, Write::Scale],
                adjusts: true,
                ..TODAY
            },
        ),
        Entry::new(
            "pvclock/dead-writer",
            "the host's thread dies in an update, and the reader retries without a limit",
            Some("without progress"),
            Pvclock { may_die: true, adjusts: true, ..TODAY },
        ),
    ]
}
