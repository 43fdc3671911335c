//! What the kernel does with a critical section's descriptor, `struct rseq_cs`, before it returns to user space.
//!
//! | kernels | checked | outside the section |
//! |---|---|---|
//! | 4.18 to 6.18 | addresses, version, flags, the signature before the abort handler | all but the flags, too |
//! | 6.19 and later, with generic entry | the abort handler's address and signature | nothing |
//!
//! A descriptor that fails a check ends the process by SIGSEGV. `tests/reality` compares this function with the
//! running kernel.
//!
//! Sources: kernel/rseq.c, `rseq_get_rseq_cs`, `rseq_need_restart`, `rseq_ip_fixup`; include/linux/rseq_entry.h,
//! `rseq_update_user_cs`.

/// `struct rseq_cs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// 0.
    pub version: u32,
    /// 0. Before 6.0: which events do not restart the section.
    pub flags: u32,
    /// The address of the first instruction.
    pub start_ip: u64,
    /// The length of the section in bytes.
    pub post_commit_offset: u64,
    /// The address of the abort handler.
    pub abort_ip: u64,
}

/// The checks of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checks {
    /// 4.18 to 5.19: flags suppress restarts.
    WithFlags,
    /// 6.0 to 6.18: flags are refused.
    All,
    /// 6.19 and later.
    AbortHandler,
}

impl Checks {
    /// Returns the checks of a kernel version.
    pub fn of(major: u32, minor: u32) -> Checks {
        match (major, minor) {
            (..6, _) => Checks::WithFlags,
            (6, ..19) => Checks::All,
            _ => Checks::AbortHandler,
        }
    }
}

/// The kernel's action at a return to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fixup {
    /// It clears `rseq_cs`, and sets the instruction pointer to the abort handler.
    Restart,
    /// It clears `rseq_cs`: the instruction pointer is outside the section.
    Clear,
    /// It changes nothing: the descriptor's flags suppress the restart.
    Keep,
    /// It ends the process by SIGSEGV.
    Kill,
}

/// `RSEQ_CS_FLAG_NO_RESTART_ON_SIGNAL`, and all three flags of this kind.
const NOT_ON_SIGNAL: u32 = 2;
const NOT_AT_ALL: u32 = 7;

/// Does what the kernel does before it delivers a signal, or returns after a preemption.
///
/// `limit` is the first address that is not of user space. `signature_at` reads the signature at an address, if it is
/// mapped; `signature` is that of the registration.
pub fn fixup(
    checks: Checks,
    descriptor: &Descriptor,
    ip: u64,
    limit: u64,
    signature_at: impl Fn(u64) -> Option<u32>,
    signature: u32,
) -> Fixup {
    let Descriptor { version, flags, start_ip, post_commit_offset, abort_ip } = *descriptor;
    let is_within = ip.wrapping_sub(start_ip) < post_commit_offset;
    let is_signed =
        || abort_ip.checked_sub(4).and_then(&signature_at).is_some_and(|found| found == signature);
    if checks == Checks::AbortHandler {
        return match is_within {
            false => Fixup::Clear,
            true if abort_ip < limit && is_signed() => Fixup::Restart,
            true => Fixup::Kill,
        };
    }
    let end = start_ip.checked_add(post_commit_offset).filter(|&end| end < limit);
    let has_addresses = start_ip < limit && end.is_some() && abort_ip < limit;
    let is_abort_within = abort_ip.wrapping_sub(start_ip) < post_commit_offset;
    if !has_addresses || version > 0 || is_abort_within || !is_signed() {
        return Fixup::Kill;
    }
    if !is_within {
        return Fixup::Clear;
    }
    match (checks, flags) {
        (_, 0) => Fixup::Restart,
        (Checks::All, _) => Fixup::Kill,
        (_, flags) if flags & NOT_AT_ALL == NOT_AT_ALL => Fixup::Keep,
        // No restart after signals without the others would be a broken section.
        (_, flags) if flags & NOT_ON_SIGNAL != 0 => Fixup::Kill,
        _ => Fixup::Restart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Descriptor =
        Descriptor { version: 0, flags: 0, start_ip: 16, post_commit_offset: 4, abort_ip: 32 };

    fn at(checks: Checks, descriptor: Descriptor, ip: u64) -> Fixup {
        let signature_at = |address| (address < 100).then_some(if address == 28 { 7 } else { 8 });
        fixup(checks, &descriptor, ip, 1000, signature_at, 7)
    }

    #[test]
    fn a_right_descriptor_restarts_its_section() {
        for checks in [Checks::WithFlags, Checks::All, Checks::AbortHandler] {
            let of = [15, 16, 19, 20].map(|ip| at(checks, RIGHT, ip));
            assert_eq!(of, [Fixup::Clear, Fixup::Restart, Fixup::Restart, Fixup::Clear]);
        }
    }

    #[test]
    fn wrong_ones_kill() {
        let wrong = [
            Descriptor { version: 1, ..RIGHT },
            Descriptor { abort_ip: 18, ..RIGHT },
            Descriptor { post_commit_offset: u64::MAX, ..RIGHT },
            Descriptor { post_commit_offset: 990, abort_ip: 999, ..RIGHT },
        ];
        for descriptor in wrong {
            assert_eq!(at(Checks::All, descriptor, 17), Fixup::Kill, "{descriptor:?}");
        }
        // The signature is looked at in any case, or only within the section.
        let unsigned = Descriptor { abort_ip: 33, ..RIGHT };
        assert_eq!([0, 17].map(|ip| at(Checks::All, unsigned, ip)), [Fixup::Kill; 2]);
        assert_eq!(
            [0, 17].map(|ip| at(Checks::AbortHandler, unsigned, ip)),
            [Fixup::Clear, Fixup::Kill]
        );
        assert_eq!(
            at(Checks::AbortHandler, Descriptor { version: 1, ..RIGHT }, 17),
            Fixup::Restart
        );
    }

    #[test]
    fn flags() {
        let with = |checks, flags| at(checks, Descriptor { flags, ..RIGHT }, 17);
        assert_eq!(
            [1, 2, 4, 7].map(|flags| with(Checks::WithFlags, flags)),
            [Fixup::Restart, Fixup::Kill, Fixup::Restart, Fixup::Keep]
        );
        assert_eq!(with(Checks::All, 1), Fixup::Kill);
        assert_eq!(with(Checks::AbortHandler, 7), Fixup::Restart);
    }
}
