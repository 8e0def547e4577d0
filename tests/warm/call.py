"""Call snakemake, with the library of the project that it is called for."""

import sys

# The process that this one is forked from has imported parts of another.
for name in [name for name in sys.modules if name.partition(".")[0] == "allcores"]:
    del sys.modules[name]
sys.path[:] = [path for path in sys.path if not path.endswith(("/scripts", "/tests/warm"))]

from snakemake.cli import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:-2])  # without --die-with-parent
