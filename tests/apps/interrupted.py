"""`python interrupted.py SIGNAL COUNT ARGUMENT…`: the command line gets SIGNAL in the middle.

The signal comes at the COUNT-th time that a commit begins or has returned, so that a test stops an
import exactly before and after something became durable. Count 0 never stops it.
"""

from __future__ import annotations

import os
import signal
import sys

from engrain.apps.cli.main import main
from engrain.contracts import faults


def stop_at(count: int, number: signal.Signals) -> None:
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += name in ("commit.before", "commit.after")
        if seen == count and name in ("commit.before", "commit.after"):
            os.kill(os.getpid(), number)

    faults.arm(hook)


if __name__ == "__main__":
    stop_at(int(sys.argv[2]), signal.Signals[sys.argv[1]])
    sys.exit(main(sys.argv[3:]))
