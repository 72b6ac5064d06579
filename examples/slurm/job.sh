#!/bin/bash
# sbatch job.sh COMMAND…: resumes from what the bucket has, saves, and is requeued before its time ends.
#
# COMMAND saves below $CHECKPOINTS, begins with the checkpoint $RESUME_FROM unless that is empty, and at
# SIGUSR1 saves and ends. RUN and the comment name the same run.
#
#SBATCH --job-name=llama
#SBATCH --comment=spillway:jobs/llama
#SBATCH --time=04:00:00
# Slurm may start it again: after a failed node, a preemption, or scontrol requeue below.
#SBATCH --requeue
# Without this the second run would empty the log of the first one.
#SBATCH --open-mode=append
# To this script alone (B:), five minutes before the time is over, or up to one minute earlier.
#SBATCH --signal=B:USR1@300
set -u
mount=${MOUNT:-/mnt/ckpt}
run=${RUN:-jobs/llama}

# The job's status is that of its command, whatever becomes of this: the gateway continues to send.
until_durable() {
    timeout -k 5 "$(($1 + 30))" spillway wait --durable --timeout "$1" "$run" ||
        echo "job.sh: the bucket may lack the newest checkpoint: spillway checkpoint list $run" >&2
}

# A link is away for up to half a minute after its checkpoint has changed: a run that was requeued asks
# for a minute. If nothing is durable, as while the bucket is away, what is complete is better than the
# beginning. latest-complete in the first place would lose less work while the gateway lives; what
# latest-durable names, a loss of the gateway cannot take back.
export CHECKPOINTS=$mount/$run RESUME_FROM=
tries=$((${SLURM_RESTART_COUNT:-0} > 0 ? 12 : 1))
links=$mount/.spillway/runs/$run
until RESUME_FROM=$(readlink -e "$links/latest-durable"); do
    if ((--tries <= 0)); then
        RESUME_FROM=$(readlink -e "$links/latest-complete")
        break
    fi
    sleep 5
done
echo "job.sh: start ${SLURM_RESTART_COUNT:-0}: ${RESUME_FROM:-from the beginning}"

# In the background, because bash hears a signal only while it waits.
srun "$@" &
command=$!
ends=
trap 'ends=yes; kill -USR1 "$command"' USR1
wait "$command"
status=$?
while kill -0 "$command" 2>/dev/null; do # the signal ended the wait
    wait "$command"
    status=$?
done

if [ -n "$ends" ]; then
    until_durable 60
    scontrol requeue "$SLURM_JOB_ID" # it ends this script
    sleep 60
fi
[ "$status" != 0 ] || until_durable 600
exit "$status"
