#!/usr/bin/env bash
# Scripts: shellcheck finds nothing in the check scripts.
# Beside: it measures nothing, and builds nothing with cargo.
# Needs: shellcheck.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need shellcheck shellcheck "lints the check scripts"
shellcheck --external-sources --source-path=SCRIPTDIR --shell=bash \
    ci/*.sh ci/lib.bash ci/flakes ci/kernels ci/kernels.d/matrix.bash ci/test .ci/run rivals/build
shellcheck --external-sources --shell=dash ci/kernels.d/{init,init-guest,runs} ci/again # busybox ash is nearest to it.
