#!/usr/bin/env bash
# Other kernels: the library's tests and attacks on Linux 5.10 and 7.2 with 4 cpus, 6.1 and 6.12 with one, under
# QEMU (ci/kernels says more).
# Long: eleven minutes of emulation.
# Builds in: static
# Needs: what ci/kernels needs.
exec "$(dirname "${BASH_SOURCE[0]}")/kernels" --guests
