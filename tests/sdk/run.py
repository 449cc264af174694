"""Runs the scenarios of the Python SDK: `OUTLAST=path/of/outlast python run.py [NAME...]`."""

import asyncio
import sys

import harness

# The modules register their scenarios.
import control  # noqa: F401
import conversation  # noqa: F401
import extensions  # noqa: F401
import failures  # noqa: F401
import permissions  # noqa: F401

sys.exit(0 if asyncio.run(harness.run_all(sys.argv[1:])) else 1)
