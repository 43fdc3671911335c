#!/usr/bin/env bash
# Emulated riscv64: most tests of the library on Linux 6.12 and 7.2, and its critical sections disturbed at every
# instruction (ci/riscv64 says more).
# Long: half an hour of emulation.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: riscv64
# Needs: what ci/riscv64 needs.
exec "$(dirname "${BASH_SOURCE[0]}")/riscv64"
