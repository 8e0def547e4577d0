# allcores: train on every core there is, and see which way of using them is fastest.
#
# config/config.yaml says what is trained and explains every key; scripts/train.py is one training.

from snakemake.utils import min_version

min_version("9.0")


if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


pathvars:
    results=CALL.folder.path,


include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/report.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        CALL.targets,
    message:
        "All that was asked for is there"
