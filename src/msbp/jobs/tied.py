"""Become another Python command that is asked to stop (SIGTERM) when its parent is gone, however that ended.

As a program: python -m msbp.jobs.tied PARENT WORDS..., where PARENT is the id of the process that starts it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie(parent: int) -> None:
    """Have this process asked to stop when its parent, of that id, is gone; end it if that is so already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        sys.exit(f"process {parent} ended before this one began")


def main() -> None:
    parent, *words = sys.argv[1:]
    tie(int(parent))
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
