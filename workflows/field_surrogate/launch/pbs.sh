#!/bin/bash
#PBS -N field_surrogate
#PBS -l select=1:ncpus=4:mpiprocs=2:ompthreads=2
#PBS -l walltime=00:10:00
#PBS -j oe
# qsub workflows/field_surrogate/launch/pbs.sh
# PBS announces no end of time, so USR1 is sent here, 60 s before the walltime: the run saves its
# state and ends with code 130, and the job is submitted again to continue it.
# qsub -v RESUME=--resume SCRIPT continues a run of an earlier job.
set -euo pipefail
seconds=540  # the walltime minus 60
cd "${PBS_O_WORKDIR:-.}"
ranks=$(wc -l < "$PBS_NODEFILE")
number=${PBS_JOBID%%[!0-9]*}
code=0
# `env` passes the variables with every mpirun. All ranks find rank 0 on the first node.
timeout --preserve-status --signal=USR1 "$seconds" mpirun -n "$ranks" env \
    MASTER_ADDR="$(head -n 1 "$PBS_NODEFILE")" MASTER_PORT="$((20000 + number % 20000))" \
    OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" \
    scitoolkit run workflows/field_surrogate training.strategy=ddp training.batch_size="$ranks" \
    ${RESUME:-} || code=$?
if [ "$code" -eq 130 ]; then
  qsub -v RESUME=--resume workflows/field_surrogate/launch/pbs.sh
fi
exit "$code"
