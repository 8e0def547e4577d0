"""Serial training: one process, as many intra-op threads as it is given. The baseline."""

from allcores.strategies.base import Alone


class Serial(Alone):
    """Apply the gradient to the weights. Sends nothing."""

    one_worker = True
    look = ("#333333", "o")
    equals_serial = "with one worker"
