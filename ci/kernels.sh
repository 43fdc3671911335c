#!/usr/bin/env bash
# Other kernels: the library's tests and attacks on Linux 5.10, 6.1, 6.12 and 7.2 under QEMU, with one cpu, on
# the oldest and the newest also with 4 (ci/kernels says more).
# Needs: what ci/kernels needs.
exec "$(dirname "${BASH_SOURCE[0]}")/kernels" --guests
