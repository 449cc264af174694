#!/bin/sh
# Keeps commands away from the release branch.
input=$(cat)
echo guarded >> "$CLAUDE_PROJECT_DIR/hook.log"
case "$input" in
    *"git push origin release"*) echo "the release branch is not to be pushed to" >&2; exit 2 ;;
esac
