"""The config of programs that take --configfile and --config, as snakemake does."""

from snakemake.utils import update_config

from allcores import yaml_files
from allcores.campaign import snakemake_internals
from allcores.study import checks, schema, sweeps


def read(files, cores=None, pairs=()):
    """The config in YAML files, merged as Snakemake does, its sweeps expanded.

    Args:
        files: later ones override earlier ones.
        cores: number of cores that the runs will share; None: unknown.
        pairs: the KEY=VALUE texts that --config gave.

    Raises:
        ValueError: it cannot be run; a line per finding.
        OSError: a file cannot be read.
    """
    config = dict(schema.defaults())
    for file in files:
        update_config(config, yaml_files.read(file))
    if pairs:
        update_config(config, yaml_files.typed(snakemake_internals.parsed_pairs(pairs)))
    problems = checks.findings(config, files, cores)
    if problems:
        raise ValueError("\n".join(["The configuration cannot be run:", *problems]))
    return sweeps.expanded(config)
