#!/bin/bash
# sbatch array.sh: a task for each line of tasks.txt. The folder is on a file system that all nodes
# share. With RequeueExit=75 in slurm.conf, a task that ended with exit code 75 is put back into the
# queue; without it, the same sbatch command goes on with what is left. A requeue after the loss of a
# node goes on, too: a lease keeps the lost process from writing to the session.
#SBATCH --job-name=outlast
#SBATCH --array=1-8%4
#SBATCH --time=01:00:00
#SBATCH --cpus-per-task=2
#SBATCH --mem=2G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=outlast-%a.log
set -euo pipefail
index=$SLURM_ARRAY_TASK_ID
export OUTLAST_CONFIG_DIR=${OUTLAST_CONFIG_DIR:-$PWD/sessions}
mkdir -p results "work-$index"
prompt=$(sed -n "${index}p" tasks.txt)
session=$(printf %s "$PWD/$index" | sha1sum |
  sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-5\3-8\4-\5/')
result=$PWD/results/$index.json
cd "work-$index"
exec outlast --resume-or-start "$session" --max-budget-usd 5 --max-duration 50m \
  --permission-mode acceptEdits --result-file "$result" --no-stdin "$prompt"
