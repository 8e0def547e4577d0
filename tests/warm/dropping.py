"""A process that imports forever, where Python drops an exception."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from allcores_study.campaign import warm_start


class Callback:
    def __del__(self):
        print("importing", flush=True)
        while True:
            time.sleep(0.01)


if __name__ == "__main__":
    warm_start.serve(*sys.argv[1:], Callback)
