"""Write the results of a study: tidy CSVs, tables, figures, a report page and final models."""

import argparse
import functools
import json
import sys
from pathlib import Path

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

from allcores_study.analysis import writing
from allcores_study.analysis.study import Study
from allcores_study.config import grid
from allcores_study.records import marks
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.serving import final_models, importance
from allcores_study.watching.ledger import UpToDateCheck

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--config",
        required=True,
        type=Path,
        metavar="FILE",
        help="config, in configs/ of the results",
    )
    add("--study", required=True, metavar="NAME", help="name of a study in the config")
    add("--again", required=True, metavar="COMMAND", help="command to show, which rebuilds this")
    add(
        "--without-missing",
        action="store_true",
        help="leave out runs without the results that the config asks for",
    )
    marks.add_flag(add)
    flags = parser.parse_args()
    try:
        folder = ResultsFolder(str(flags.config.parent.parent))
        config = json.loads(flags.config.read_text())
        table = grid.expand(config)
        if flags.without_missing:
            table = UpToDateCheck(folder, table).table_of_these()
        study = Study(config, table, folder, flags.study)
        made_of = study.made_of  # before loading a user's metric, which may change sys.path
        of_columns = functools.partial(importance.of_best, study)
        files = writing.write(study, flags.again, of_columns)
        final_models.write(study)
        study.write_made(made_of, files)
        marks.put_all(flags.mark)
    except json.JSONDecodeError as error:
        sys.exit(f"report.py: {flags.config}: not JSON: {error}")
    except (ValueError, OSError) as error:  # damaged results, or those of something else
        sys.exit(f"report.py: {error}")
