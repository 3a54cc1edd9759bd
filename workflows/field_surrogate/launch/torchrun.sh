#!/bin/sh
# Train on several processes of this machine: ./torchrun.sh [PROCESSES] [section.key=value ...]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
processes=${1:-2}
[ $# -gt 0 ] && shift
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec torchrun --standalone --nproc-per-node "$processes" -m scitoolkit run "$here" \
    training.strategy=ddp training.batch_size="$processes" "$@"
