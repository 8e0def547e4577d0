"""Call snakemake, with the library of the project that it is called for."""

import atexit
import os
import sys
from pathlib import Path

# The process that this one is forked from has imported parts of another.
for name in [name for name in sys.modules if name.partition(".")[0].startswith("allcores")]:
    del sys.modules[name]
sys.path[:] = [path for path in sys.path if not path.endswith(("/scripts", "/tests/warm"))]


def share(folder, snakefile):
    """Let the call's programs be forked from the warm process in a folder, which is there."""
    sys.path.insert(0, str(Path(snakefile).parents[1] / "scripts"))
    from allcores_study.campaign import warm_start

    def start(log):
        place = warm_start.folder()
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(Path(folder) / warm_start.folder("programs").name)
        return atexit.register(place.unlink, missing_ok=True)

    warm_start.start = start


if __name__ == "__main__":
    arguments = sys.argv[1:-2]  # without --die-with-parent
    shared = os.environ.pop("SHARED_WARM", None)
    if shared:
        share(shared, arguments[arguments.index("-s") + 1])
    from snakemake.cli import main

    sys.argv[1:] = arguments
    try:
        main(arguments)
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out
