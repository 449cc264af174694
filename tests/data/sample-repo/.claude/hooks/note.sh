#!/bin/sh
cat > /dev/null
echo edited >> "$CLAUDE_PROJECT_DIR/hook.log"
