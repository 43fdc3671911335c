//! The system call `rseq(2)`: which registrations it accepts, what it refuses, and what it leaves in the area.
//!
//! One thread's calls do not meet those of others, so this is a function, without interleavings. It is compared with
//! the running kernel in `tests/reality`.
//!
//! | after | the registration |
//! |---|---|
//! | `fork` | stays: the child has a copy of the area |
//! | `vfork`, a new thread (CLONE_VM) | is gone in the child |
//! | `exec`, an exit | is gone |
//!
//! Source: kernel/rseq.c, `SYSCALL_DEFINE4(rseq, …)`; include/linux/rseq.h, `rseq_fork`.

/// `RSEQ_FLAG_UNREGISTER`.
pub const UNREGISTER: u32 = 1;

/// `RSEQ_FLAG_SLICE_EXT_DEFAULT_ON`.
pub const SLICE_DEFAULT_ON: u32 = 2;

/// The length that the first kernels had, and still the shortest that is accepted.
pub const ORIGINAL_LENGTH: u32 = 32;

/// The features of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abi {
    /// AT_RSEQ_FEATURE_SIZE, 0 where the kernel does not tell (before 6.3).
    pub feature_size: u32,
    /// AT_RSEQ_ALIGN, 0 where the kernel does not tell.
    pub align: u32,
    /// Whether a registration reads the area at once (fd881d0a085f, 6.14 and many stable kernels). Others take the null
    /// address, and then have no registration.
    pub reads_area: bool,
    /// Whether [`SLICE_DEFAULT_ON`] is known (7.0).
    pub has_slices: bool,
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The address of the area.
    pub address: u64,
    /// The area's length.
    pub length: u32,
    /// 0, [`UNREGISTER`], or [`SLICE_DEFAULT_ON`].
    pub flags: u32,
    /// The signature before abort handlers.
    pub signature: u32,
}

/// The error with which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// EINVAL.
    Invalid,
    /// EPERM: another signature.
    Signature,
    /// EBUSY: it is registered already.
    Busy,
    /// EFAULT: there is no memory for it.
    Fault,
}

/// A thread's registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registration {
    area: Option<(u64, u32, u32)>,
}

impl Registration {
    /// Returns the address of the registered area.
    pub fn address(&self) -> Option<u64> {
        self.area.map(|(address, ..)| address)
    }

    /// Calls `rseq(address, length, flags, signature)`. `is_mapped` says whether the thread can write there.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn call(
        &mut self,
        abi: Abi,
        call: Call,
        is_mapped: impl Fn(u64) -> bool,
    ) -> Result<(), Refusal> {
        let Call { address, length, flags, signature } = call;
        if flags & UNREGISTER != 0 {
            let Some((registered, of_length, with)) = self.area.filter(|_| flags == UNREGISTER)
            else {
                return Err(Refusal::Invalid);
            };
            if registered != address || of_length != length {
                return Err(Refusal::Invalid);
            }
            if with != signature {
                return Err(Refusal::Signature);
            }
            self.area = None;
            return Ok(());
        }
        let known = if abi.has_slices { SLICE_DEFAULT_ON } else { 0 };
        if flags & !known != 0 {
            return Err(Refusal::Invalid);
        }
        if let Some((registered, of_length, with)) = self.area {
            return Err(match (registered, of_length) == (address, length) {
                false => Refusal::Invalid,
                true if with != signature => Refusal::Signature,
                true => Refusal::Busy,
            });
        }
        let fits = match abi.feature_size {
            0 => length == ORIGINAL_LENGTH && address % 32 == 0,
            _ if length == ORIGINAL_LENGTH => address % 32 == 0,
            size => {
                length > ORIGINAL_LENGTH
                    && length >= size
                    && address % u64::from(abi.align.max(32)) == 0
            }
        };
        if !fits {
            return Err(Refusal::Invalid);
        }
        if address == 0 && !abi.reads_area {
            return Ok(());
        }
        if !is_mapped(address) {
            return Err(Refusal::Fault);
        }
        self.area = Some((address, length, signature));
        Ok(())
    }

    /// Returns the registration of a child: with memory of its own it has one, too.
    pub fn in_child(self, shares_memory: bool) -> Registration {
        if shares_memory { Registration::default() } else { self }
    }

    /// After `exec`.
    pub fn after_exec(self) -> Registration {
        Registration::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Abi = Abi { feature_size: 28, align: 32, reads_area: true, has_slices: false };
    const V2: Abi = Abi { feature_size: 33, align: 64, reads_area: true, has_slices: true };
    const OLD: Abi = Abi { feature_size: 0, align: 0, reads_area: false, has_slices: false };
    const AREA: Call = Call { address: 0x1000, length: 32, flags: 0, signature: 7 };

    fn answers(abi: Abi, calls: &[Call]) -> Vec<Result<(), Refusal>> {
        let mut registration = Registration::default();
        calls.iter().map(|&call| registration.call(abi, call, |address| address != 0)).collect()
    }

    #[test]
    fn a_registration_is_of_one_area_and_signature() {
        let other = Call { signature: 8, ..AREA };
        let end = Call { flags: UNREGISTER, ..AREA };
        let calls = [
            AREA,
            AREA,
            other,
            Call { address: 0x2000, ..AREA },
            Call { flags: 1, ..other },
            end,
            end,
        ];
        let (busy, signature, invalid) =
            (Err(Refusal::Busy), Err(Refusal::Signature), Err(Refusal::Invalid));
        assert_eq!(
            answers(TODAY, &calls),
            [Ok(()), busy, signature, invalid, signature, Ok(()), invalid]
        );
    }

    #[test]
    fn lengths_and_alignments() {
        let long = |length, address| answers(V2, &[Call { length, address, ..AREA }])[0];
        assert_eq!(long(33, 0x1000), Ok(()));
        assert_eq!(long(33, 0x1020), Err(Refusal::Invalid));
        assert_eq!(long(32, 0x1020), Ok(()));
        assert_eq!(long(28, 0x1000), Err(Refusal::Invalid));
        let slices = Call { flags: SLICE_DEFAULT_ON, ..AREA };
        assert_eq!(
            (answers(V2, &[slices])[0], answers(TODAY, &[slices])[0]),
            (Ok(()), Err(Refusal::Invalid))
        );
        assert_eq!(answers(OLD, &[Call { length: 64, ..AREA }])[0], Err(Refusal::Invalid));
        let null = Call { address: 0, ..AREA };
        assert_eq!(answers(TODAY, &[null])[0], Err(Refusal::Fault));
        assert_eq!(answers(OLD, &[null, null, AREA]), [Ok(()); 3]);
    }

    #[test]
    fn children() {
        let mut parent = Registration::default();
        parent.call(TODAY, AREA, |_| true).unwrap();
        assert_eq!(parent.in_child(false).address(), Some(0x1000));
        assert_eq!((parent.in_child(true).address(), parent.after_exec().address()), (None, None));
    }
}
