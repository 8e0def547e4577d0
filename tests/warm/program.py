"""Call a program in a process that was forked from one that has imported torch."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    program = sys.argv[1]
    sys.argv[:] = sys.argv[1:-2]  # without --die-with-parent
    sys.path.insert(0, str(Path(program).parent))
    if Path(program).name == "plan.py":
        sys.path.append(str(Path(__file__).parent))
        import trials  # noqa: F401
    runpy.run_path(program, run_name="__main__")
