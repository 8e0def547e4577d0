"""Write the first sentences of the docstrings of libraries: docstrings.csv.

The texts come from installed packages, so nothing is downloaded.
"""

import csv
import inspect
import re
from pathlib import Path

import numpy
import pandas
import scipy.signal
import scipy.stats
import torch

MOST = 250  # texts of each library
MODULES = {
    "numpy": (numpy, numpy.linalg, numpy.fft, numpy.random),
    "pandas": (pandas, pandas.DataFrame, pandas.Series, pandas.Index),
    "scipy": (scipy.stats, scipy.signal),
    "torch": (torch, torch.nn, torch.nn.functional, torch.optim),
}


def sentences(modules):
    """Yield the first paragraph of each public docstring in some modules."""
    for module in modules:
        for name, value in inspect.getmembers(module):
            text = (inspect.getdoc(value) or "").strip()
            # A line with a signature would give the library away.
            paragraphs = [part for part in text.split("\n\n") if not re.match(r"\w+\(", part)]
            if not name.startswith("_") and callable(value) and paragraphs:
                yield " ".join(paragraphs[0].split())


with Path("docstrings.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["text", "library"])
    for library, modules in MODULES.items():
        distinct = sorted({text for text in sentences(modules) if len(text.split()) > 3})
        step = max(1, len(distinct) // MOST)
        rows.writerows([text, library] for text in distinct[::step][:MOST])
