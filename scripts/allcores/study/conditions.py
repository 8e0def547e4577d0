"""Requirements on a run besides its weights: what is scored, and how it is timed."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Conditions:
    """How a run is to be scored and timed, which changes no weights, and what it was made of.

    Attributes:
        curves: whether the weights after every epoch are scored, not only the last ones.
        exclusive: whether nothing else runs on the machine at the same time.
        generation: how often the run was repeated because an earlier one lacked one of these.
        made_of: identity.made_of() of the run; "": unknown.
    """

    curves: bool = False
    exclusive: bool = False
    generation: int = 0
    made_of: str = ""

    def after(self, earlier):
        """These Conditions, with the generation of the next run into a folder.

        Results that meet them keep their generation, so that asking for less retrains nothing; else
        it is the next one.

        Args:
            earlier: the Conditions of the results that are there; None: there are none.
        """
        if earlier is None:
            return self
        is_met = self.curves <= earlier.curves and self.exclusive <= earlier.exclusive
        return replace(self, generation=earlier.generation + (not is_met))
