#!/bin/sh
# A prolog that keeps jobs off nodes whose sglang is not patched like that of all others: a prolog
# that fails drains its node. The hash is what `rewriter status --digest` prints on a good one.
set -eu

# Jobs of other partitions do not care.
[ "${SLURM_JOB_PARTITION:-}" = "${SGLANG_PARTITION:-sglang}" ] || exit 0

expected=$(cat "${SGLANG_PATCHED:-/etc/sglang/patched.sha256}")
if ! told=$(rewriter status --expect "$expected" 2>&1); then
    echo "sglang on $(hostname) is not patched like the others: $told" >&2
    exit 1
fi
