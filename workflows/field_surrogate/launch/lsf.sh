#!/bin/bash
#BSUB -J field_surrogate
#BSUB -n 2
#BSUB -R "span[ptile=2] affinity[core(2)]"
#BSUB -W 10
#BSUB -wt 1
#BSUB -wa USR1
#BSUB -o field_surrogate.%J.log
# bsub < workflows/field_surrogate/launch/lsf.sh
# LSF sends USR1 one minute before time runs out: the run saves its state and ends with code 130,
# and the job is submitted again to continue it.
# RESUME=--resume bsub < SCRIPT continues a run of an earlier job.
set -euo pipefail
cd "${LS_SUBCWD:-.}"
ranks=$(wc -l < "$LSB_DJOB_HOSTFILE")
code=0
# This shell gets the signal too, and waits for the ranks, which save.
trap 'kill -USR1 "$job"' USR1
# `env` passes the variables with every mpirun. All ranks find rank 0 on the first host.
mpirun -n "$ranks" env \
    MASTER_ADDR="$(head -n 1 "$LSB_DJOB_HOSTFILE")" \
    MASTER_PORT="$((20000 + LSB_JOBID % 20000))" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" \
    scitoolkit run workflows/field_surrogate training.strategy=ddp training.batch_size="$ranks" \
    ${RESUME:-} &
job=$!
wait "$job" || code=$?
# A signal ends `wait` with a code above 128 while the ranks still save.
while kill -0 "$job" 2> /dev/null; do code=0; wait "$job" || code=$?; done
if [ "$code" -eq 130 ]; then
  RESUME=--resume bsub < workflows/field_surrogate/launch/lsf.sh
fi
exit "$code"
