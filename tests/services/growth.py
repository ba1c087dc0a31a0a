"""`python growth.py FILE DATABASE`: imports the file; prints the growth of the process in bytes.

The growth is of the most memory that the process ever had, over what it had when all was loaded.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from engrain import Memory, Scope


def peak_bytes() -> int:
    """The most resident memory so far.

    Linux's `ru_maxrss` begins at what the parent process had, so the kernel's own mark is read.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    scope = Scope(org="acme", user="ana")
    with Memory.open(sys.argv[2]) as memory:
        warm_up = memory.sessions.start(scope)
        memory.enrichment.extract(scope, warm_up.id)
        assert memory.imports.formats
        before = peak_bytes()
        report = memory.imports.run(scope, Path(sys.argv[1]))
        found = {"grown": peak_bytes() - before, "events_new": report.events_new}
        sys.stdout.write(json.dumps(found))
