"""Requirements on a run besides its weights: what is scored, and how it is timed."""

import contextlib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from allcores.files import read_json, write_json

FILE = "conditions.json"


def is_ours(folder):
    """Whether a folder has a file that Conditions.write() wrote."""
    try:
        Conditions(**read_json(Path(folder) / FILE))
    except (OSError, ValueError, TypeError):
        return False
    return True


def restore(folder):
    """Write FILE in a run's folder again, by what metrics.json says, where it is damaged or gone:
    it is the mark by which the run may be trained again there.
    """
    if not is_ours(folder):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # neither is sound
            Conditions.of(folder).write(folder)


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

    def write(self, folder):
        write_json(Path(folder) / FILE, asdict(self))

    @classmethod
    def of(cls, folder):
        """The Conditions of the results in a folder (a Path), from FILE or else metrics.json.

        Raises:
            OSError, ValueError, TypeError, KeyError: neither file can be read, or it is not ours.
        """
        try:
            return cls(**read_json(folder / FILE))
        except (OSError, ValueError, TypeError):  # gone or damaged
            recorded = read_json(folder / "metrics.json")["conditions"]
            return cls(**{field.name: recorded[field.name] for field in fields(cls)})

    def after(self, folder):
        """These Conditions, with the generation of the next run into a folder.

        Results that meet them keep their generation, so that asking for less retrains nothing; else
        it is the next one.
        """
        try:
            earlier = Conditions.of(Path(folder))
        except (OSError, ValueError, TypeError, KeyError):  # none, or not ours
            return self
        is_met = self.curves <= earlier.curves and self.exclusive <= earlier.exclusive
        return replace(self, generation=earlier.generation + (not is_met))
