# What the rules share: the config, and the Call of allcores_study/campaign/call.py.

import os
import sys

sys.path.insert(0, os.path.abspath(f"{workflow.current_basedir}/../../scripts"))

from allcores_study.campaign import snakemake_internals as internals
from allcores_study.campaign import stopping

stopping.exit_by_interrupt()


if not (internals.given_files(workflow) or "studies" in config):

    configfile: f"{workflow.current_basedir}/../../config/config.yaml"


from allcores_study.campaign import commands
from allcores_study.campaign.call import Call
from allcores_study.config.run import PATH
from snakemake.logging import logger

CALL = Call(workflow, config)
DATA, RUNS = CALL.data, CALL.runs
AGAIN = commands.again(*CALL.given)


wildcard_constraints:
    **CALL.wildcard_constraints,


onstart:
    CALL.start(logger)


onsuccess:
    CALL.end()


onerror:
    CALL.fail()
