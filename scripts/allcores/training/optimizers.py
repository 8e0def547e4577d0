"""What a run does to gradients before its optimizer, and to weights after it."""

from dataclasses import dataclass

import torch
from torch.optim import swa_utils

from allcores.study import registry
from allcores.study.run import Choice

# Numbers of a gradient that are squared at a time, in double precision.
PART = 1 << 18
# As torch.nn.utils.clip_grad_norm_ has it, so that a gradient of 0 divides by something.
LEAST_NORM = 1e-6


@dataclass(frozen=True)
class OptimizerMaker:
    """Makes torch's optimizers, which scale down gradients whose Euclidean norm is above clip_norm.

    The norm is that of the whole gradient (Pascanu et al. 2013, "On the difficulty of training
    recurrent neural networks"), however many processes hold parts of it. It is summed in double
    precision, so that the factor comes out the same however the gradient is cut.

    Attributes:
        choice: of a class of torch.optim, with its options.
        clip_norm: None: gradients stay as they are.
    """

    choice: Choice
    clip_norm: float | None = None

    def __call__(self, parameters, add_up=None):
        """The optimizer of some parameters.

        Args:
            add_up: function of a tensor that returns its sum over the processes that hold the
                parts of the gradient and update them at the same time; None: this one holds all.
        """
        made = registry.optimizers()[self.choice.name].load()(parameters, **self.choice.options)
        if self.clip_norm is not None:
            made.register_step_pre_hook(lambda *_: self.clip(_gradients(made), add_up))
        return made

    @property
    def without_clipping(self):
        """The same for gradients that are clipped elsewhere."""
        return OptimizerMaker(self.choice)

    def clip(self, gradients, add_up=None):
        """Scale a gradient down to clip_norm, in place.

        Args:
            gradients: the tensors that it is made of.
            add_up: as of __call__().
        """
        if self.clip_norm is None:
            return
        squares = torch.zeros(1, dtype=torch.float64)
        for gradient in gradients:
            for part in gradient.detach().flatten().split(PART):
                squares += part.double().square().sum()
        norm = float((add_up(squares) if add_up else squares).sqrt())
        if norm > self.clip_norm:
            for gradient in gradients:
                gradient.mul_(self.clip_norm / (norm + LEAST_NORM))


def _gradients(optimizer):
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    return [each.grad for each in parameters if each.grad is not None]


class WeightAverage:
    """The average of the weights over a training, which is what the run ships; torch's own.

    `ema` is the decay of an exponential moving average (Polyak and Juditsky 1992); `swa` the part
    of the training after which a plain average begins (Izmailov et al. 2018, "Averaging Weights
    Leads to Wider Optima and Better Generalization"); until then a run ships the weights that it
    trains. Batch-norm statistics are averaged alike. Rank 0 keeps it, from what it computes with.

    Args:
        run: the Run, without `auto`.
        module: whose weights each step updates.
        steps: batches in the whole training.
        rank: of this worker.
    """

    def __init__(self, run, module, steps, rank):
        self.module, self.begin = module, round((run.swa or 0) * steps)
        self.step, self.averaged = 0, None
        if rank == 0 and (run.ema or run.swa is not None):
            rule = (
                swa_utils.get_ema_multi_avg_fn(run.ema)
                if run.ema
                else swa_utils.get_swa_multi_avg_fn()
            )
            self.averaged = swa_utils.AveragedModel(module, multi_avg_fn=rule, use_buffers=True)

    def take(self, step):
        """Take in the weights after a step, counted from 1 over the whole training."""
        if self.averaged and step > self.begin:
            self.averaged.update_parameters(self.module)

    def weights(self, model):
        """The state_dict that the run ships: of the average, or of the model if there is none."""
        if self.averaged is None or not self.averaged.n_averaged:
            return model.state_dict()
        return {name: value.cpu() for name, value in self.averaged.module.state_dict().items()}

    def state(self):
        """All that a resumed run needs, as tensors; None: nothing."""
        return self.averaged and self.averaged.state_dict()

    def restore(self, state):
        """Load what state() returned."""
        if self.averaged:
            self.averaged.load_state_dict(state)
