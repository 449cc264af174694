#!/bin/bash
# parallel.sh: a task for each line of tasks.txt, four at a time, with GNU parallel. Started again, it
# goes on with the tasks that have not ended well; --sshlogin and a shared folder use further hosts.
set -euo pipefail
task() {
  prompt=$1 index=$2
  mkdir -p results "work-$index"
  session=$(printf %s "$PWD/$index" | sha1sum |
    sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-5\3-8\4-\5/')
  result=$PWD/results/$index.json
  cd "work-$index"
  exec outlast --resume-or-start "$session" --max-budget-usd 5 --max-duration 50m \
    --permission-mode acceptEdits --result-file "$result" --no-stdin "$prompt"
}
export -f task
export OUTLAST_CONFIG_DIR=${OUTLAST_CONFIG_DIR:-$PWD/sessions}
export SHELL=/bin/bash
exec parallel --jobs 4 --retries 3 --joblog tasks.log --resume-failed --line-buffer \
  --termseq TERM,10000,KILL,25 task '{}' '{#}' :::: tasks.txt
