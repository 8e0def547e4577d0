"""Call scripts/train.py in a process that was forked in another folder."""

import os
import runpy
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"
if str(SCRIPTS) not in sys.path:  # in a process that starts by itself
    sys.path.insert(0, str(SCRIPTS))
# As the library does where it is imported.
sys.path.append(os.getcwd())  # noqa: PTH109

if __name__ == "__main__":
    if "ALLCORES_TESTS" in os.environ:
        sys.path.append(str(Path(__file__).parent))
        import trials  # noqa: F401
    from allcores_study.training import progress, resuming

    # As of epochs that take long: tests wait for what is written after each.
    resuming.INTERVAL, resuming.SHARE, progress.INTERVAL = 0.0, float("inf"), 0.0
    runpy.run_path(str(SCRIPTS / "train.py"), run_name="__main__")
