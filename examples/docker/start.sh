#!/bin/sh
# The start-up gate: run the command only if the patch is in. It costs a fraction of a second.
set -eu
rewriter check --require applied >&2
exec "$@"
