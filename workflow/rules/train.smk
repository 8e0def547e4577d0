# The rule calibrate measures which recipe is fastest, if a model has `auto`; train trains one run.


rule calibrate:
    input:
        RUNS.recipe_inputs,
    output:
        CALL.folder.recipe.replace(".json", ".{made_of}"),
    log:
        "<results>/logs/calibrate/{dataset}/{family}_{measured}.{made_of}.log",
    priority: 1e9
    conda:
        "../../environment.yml"
    threads: lambda wildcards: min(CALL.most_cores, RUNS.cores_of_recipe(wildcards))
    resources:
        nodes=1,
        slurm_extra=RUNS.options_of_sbatch,
        mem_mb=RUNS.memory_of_recipe,
        runtime=RUNS.minutes_of_recipe,
    params:
        command=RUNS.calibrate_command,
    message:
        "Measure the fastest recipe of {wildcards.family}"
    shell:
        f"exec {CALL.launcher} {{params.command}} --cores {CALL.cores_flag} > {{log:q}} 2>&1"


rule train:
    input:
        RUNS.inputs,
    output:
        f"<results>/runs/{PATH}/made.{{made_of}}",
    log:
        f"<results>/logs/train/{PATH}.{{made_of}}.log",
    priority: RUNS.priority
    conda:
        "../../environment.yml"
    threads: RUNS.threads
    resources:
        **RUNS.cluster_resources,
    params:
        command=RUNS.command,
    message:
        "Train {wildcards.model} with {wildcards.strategy}, see {log}"
    shell:
        # exec, so that killing Snakemake ends the training, not a shell around it.
        f"exec {CALL.launcher} {{params.command}} --cores {CALL.cores_flag} > {{log:q}} 2>&1"


# Runs that take seconds share a job; planning/dealing.py decides which. So do runs that follow from a choice,
# because they are known only when the job begins. The output has another name in each invocation, so that
# Snakemake always runs the job.
rule train_several:
    input:
        RUNS.inputs,
    output:
        CALL.folder.shared_job("{call}", "{number}", "done"),
    log:
        CALL.folder.shared_job("{call}", "{number}", "log"),
    priority: RUNS.priority
    conda:
        "../../environment.yml"
    threads: RUNS.threads
    resources:
        **RUNS.cluster_resources,
    params:
        command=RUNS.command_of_shared,
    message:
        "Train short runs, or what a choice has kept, see {log}"
    shell:
        f"exec {CALL.launcher} {{params.command}} --cores {CALL.cores_flag} > {{log:q}} 2>&1"
