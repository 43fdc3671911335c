#!/usr/bin/env bash
# Emulated arm64: most tests of the library on Linux 6.12, with pages of 4 and of 16 KiB, and on 7.2, and its critical
# sections disturbed at every instruction (ci/arm64 says more).
# Long: forty minutes of emulation.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: arm64
# Needs: what ci/arm64 needs.
exec "$(dirname "${BASH_SOURCE[0]}")/arm64"
