#!/usr/bin/env bash
# Emulated arm64: most tests of the library on Linux 5.10 to 7.2, with pages of 4, 16 and 64 KiB, and its critical
# sections disturbed at every instruction (ci/arm64 says more).
# Long: two hours of emulation, and at first half an hour in which kernels are built.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: arm64
# Needs: what ci/arm64 needs.
exec "$(dirname "${BASH_SOURCE[0]}")/arm64"
