"""The warm process of a call of snakemake: see allcores/machine/warm_start.py."""

import sys

from allcores.machine import warm_start


def warm_up():
    """Import what the programs of runs do: check_models.py, train.py."""
    from allcores.machine import cores, lean_torch

    cores.set_thread_variables(1)  # each program sets its own
    lean_torch.import_torch()
    import threadpoolctl  # noqa: F401

    import check_models  # noqa: F401
    import train  # noqa: F401
    from allcores.study import registry
    from allcores.training import experiment, sanity  # noqa: F401

    # They are read from torch's files.
    registry.optimizers()
    registry.losses()


if __name__ == "__main__":
    folder, listener, caller = sys.argv[1:]
    warm_start.serve(folder, int(listener), int(caller), warm_up)
