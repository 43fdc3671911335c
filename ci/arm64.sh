#!/usr/bin/env bash
# Emulated arm64: tests of the library on Linux 6.12 with 4 cpus, and its critical sections disturbed (ci/arm64 says
# more).
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: arm64
# Needs: what ci/arm64 needs.
exec "$(dirname "${BASH_SOURCE[0]}")/arm64" --brief
