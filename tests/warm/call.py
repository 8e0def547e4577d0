"""Call snakemake, with the library of the project that it is called for."""

import atexit
import sys

# The process that this one is forked from has imported parts of another.
for name in [name for name in sys.modules if name.partition(".")[0].startswith("allcores")]:
    del sys.modules[name]
sys.path[:] = [path for path in sys.path if not path.endswith(("/scripts", "/tests/warm"))]

if __name__ == "__main__":
    arguments = sys.argv[1:-2]  # without --die-with-parent
    from snakemake.cli import main

    sys.argv[1:] = arguments
    try:
        main(arguments)
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out
