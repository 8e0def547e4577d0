"""What a paper cites that uses the results of a study, as BibTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import allcores

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.config.run import Run

# As CITATION.cff has it.
ALLCORES = f"""@misc{{allcores,
  author = {{{{The allcores authors}}}},
  title  = {{allcores: train neural networks on every CPU core,
            and see which way of using them is fastest}},
  year   = {{2026}},
  note   = {{Version {allcores.__version__}}}
}}"""
SNAKEMAKE = """@article{snakemake,
  author  = {M{\\"o}lder, Felix and Jablonski, Kim Philipp and Letcher, Brice and others},
  title   = {Sustainable data analysis with {Snakemake}},
  journal = {F1000Research},
  volume  = {10},
  number  = {33},
  year    = {2021}
}"""
TORCH = """@inproceedings{pytorch,
  author    = {Paszke, Adam and Gross, Sam and Massa, Francisco and others},
  title     = {{PyTorch}: An Imperative Style, High-Performance Deep Learning Library},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {32},
  year      = {2019}
}"""
SCIKIT_LEARN = """@article{scikit-learn,
  author  = {Pedregosa, Fabian and Varoquaux, Ga{\\"e}l and Gramfort, Alexandre and others},
  title   = {Scikit-learn: Machine Learning in {Python}},
  journal = {Journal of Machine Learning Research},
  volume  = {12},
  pages   = {2825--2830},
  year    = {2011}
}"""
CORRECTED_TEST = """@article{nadeau-bengio,
  author  = {Nadeau, Claude and Bengio, Yoshua},
  title   = {Inference for the Generalization Error},
  journal = {Machine Learning},
  volume  = {52},
  pages   = {239--281},
  year    = {2003}
}"""
OPTUNA = """@inproceedings{optuna,
  author    = {Akiba, Takuya and Sano, Shotaro and Yanase, Toshihiko and others},
  title     = {Optuna: A Next-generation Hyperparameter Optimization Framework},
  booktitle = {Proceedings of the 25th ACM SIGKDD International Conference on Knowledge Discovery
               and Data Mining},
  year      = {2019}
}"""


def bibtex(frames: dict[str, pd.DataFrame], runs: list[Run], searches: bool) -> str:
    """Return the entries of what a study used.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        runs: of the study.
        searches: whether a sampler suggested candidates.
    """
    is_cross_validated = any(run.folds for run in runs)
    is_compared = any(len(frames.get(name, ())) for name in ("models_table", "comparison_table"))
    used = {
        ALLCORES: True,
        SNAKEMAKE: True,
        TORCH: not all(run.is_estimator for run in runs),
        SCIKIT_LEARN: is_cross_validated or any(run.is_estimator for run in runs),
        CORRECTED_TEST: is_compared,
        OPTUNA: searches,
    }
    return "\n\n".join(entry for entry, is_used in used.items() if is_used)
