"""The record that everything made here has: what it was made of, its files, and what it says."""

from dataclasses import dataclass, field
from pathlib import Path

from allcores.files import read_json, write_json
from allcores.study import fingerprint

PARTS = ("made_of", "files", "loaded")


@dataclass(frozen=True)
class Record:
    """A JSON file beside the files that were made with it. Whether these are still valid is decided
    by it alone: by content, never by the times of files.

    Attributes:
        made_of: a digest of all that decides them.
        files: name of each of the other files, relative to the record's folder -> its SHA-256.
        loaded: fingerprint.loaded(): the user's modules that were in use.
        content: what it says besides.
    """

    made_of: str
    files: dict = field(default_factory=dict)
    loaded: dict = field(default_factory=dict)
    content: dict = field(default_factory=dict)

    @classmethod
    def read(cls, path):
        """The Record in a file.

        Raises:
            ValueError: it is damaged, or is no record.
            OSError: it cannot be read.
        """
        content = read_json(path)
        try:
            return cls(*(content.pop(part) for part in PARTS), content)
        except KeyError as error:
            raise ValueError(f"{path} has no {error}. Delete it to make it again") from None

    def write(self, path):
        write_json(path, {part: getattr(self, part) for part in PARTS} | self.content)

    def is_current(self, made_of):
        """Whether it was made of this, and no module of the user's was edited since."""
        return self.made_of == made_of and not fingerprint.changed(self.loaded)

    def damaged_file(self, folder, digest):
        """The first of the files that is gone or is not what was written; None: there is none.

        Args:
            folder: of the record.
            digest: function of a file that returns its SHA-256.
        """
        for name, expected in self.files.items():
            file = Path(folder, name)
            try:
                is_sound = digest(file) == expected
            except OSError:  # gone, or no file
                is_sound = False
            if not is_sound:
                return file
        return None
