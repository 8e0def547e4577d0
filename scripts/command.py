"""Train neural networks on every CPU core, from any folder.

    allcores run --configfile mine.yaml                  what a config asks for, on all cores; other
                                                         flags are snakemake's: -n, --cores 4,
                                                         --profile slurm (lsf, sge, pbs, htcondor)
    allcores plan --configfile mine.yaml --cores 48      how long that would take
    allcores status --configfile mine.yaml --watch       how far it is
    allcores run --unlock                                after a call that was killed
    allcores predict --help                              use what was trained
    allcores train --help                                one training by hand

Results go to results/ in the folder where it is called.
"""

import importlib.metadata
import itertools
import os
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
PROGRAMS = ("plan", "status", "predict", "train")
# What programs advise to call, in the place of snakemake: see campaign/commands.py.
RUN = "allcores run"


def main():
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help") or (name == "run" and {"-h", "--help"} & set(arguments)):
        print(__doc__)
    elif name == "--version":
        print(importlib.metadata.version("allcores"))
    elif name == "run":
        # As snakemake, it takes --flag=value, too.
        parted = (w.split("=", 1) if w.startswith("--") else [w] for w in arguments)
        arguments = list(itertools.chain.from_iterable(parted))
        if not {"--configfile", "--configfiles", "--unlock"} & set(arguments):
            sys.exit("allcores run: expected --configfile FILE; --help shows examples")
        profiles = {place.name: place for place in (SCRIPTS.parent / "profiles").iterdir()}
        arguments = [profiles.get(word, word) for word in arguments]
        is_said = any(str(word).startswith(("--cores", "-c", "--profile")) for word in arguments)
        cores = [] if is_said else ["--cores", "all"]
        snakefile = SCRIPTS.parent / "workflow" / "Snakefile"
        call("-m", "snakemake", "-s", snakefile, *cores, *arguments)
    elif name in PROGRAMS:
        call(SCRIPTS / f"{name}.py", *arguments)
    else:
        sys.exit(f"allcores: found {name}; expected one of run, {', '.join(PROGRAMS)}")


def call(*words):
    """Become Python with these words."""
    environment = os.environ | {"ALLCORES_RUN": RUN}
    os.execve(sys.executable, [sys.executable, *map(str, words)], environment)


if __name__ == "__main__":
    main()
