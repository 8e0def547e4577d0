# How a model is fastest here, where the config leaves that open. One training: one fold of one dataset,
# one model, schedule, strategy, number of workers.


rule calibrate:
    input:
        info="<results>/data/{dataset}/dataset.json",
    output:
        RECIPE_FILE,
    log:
        "<results>/logs/calibrate/{dataset}/{model}_w{workers}t{threads}.log",
    # It has the machine to itself, before others begin.
    priority: 1e9
    conda:
        "../../environment.yml"
    threads: most_cores()
    resources:
        slurm_extra="--exclusive",
        mem_mb=lambda wildcards, attempt: 2 * attempt * estimate.memory_mb(asking(wildcards)),
        runtime=lambda wildcards, attempt: attempt * estimate.minutes(asking(wildcards)),
    params:
        # Not recorded, being a function of input: any run that asks the question will do.
        settings=lambda wildcards, input: asking(wildcards).to_json(),
        question=lambda wildcards: recipes.question(asking(wildcards)),
        code=lambda wildcards: fingerprint.of_recipe(asking(wildcards)),
    message:
        "Measure how {wildcards.model} is fastest with {wildcards.workers} worker(s)"
    script:
        "../../scripts/calibrate.py"


rule train:
    input:
        unpack(inputs_of),
    output:
        metrics=f"<results>/runs/{PATH}/metrics.json",
        trace=f"<results>/runs/{PATH}/utilisation.csv",
        weights=f"<results>/runs/{PATH}/weights.pt",
    log:
        f"<results>/logs/train/{PATH}.log",
    priority: urgency
    conda:
        "../../environment.yml"
    threads: run_threads
    resources:
        **CLUSTER_RESOURCES,
        mem_mb=lambda wildcards, attempt: attempt * estimate.memory_mb(run_of(wildcards)),
        runtime=lambda wildcards, attempt: attempt * estimate.minutes(run_of(wildcards)),
    params:
        # All that decides the result, in one string: Snakemake compares it with that of the last time.
        # The data are inputs.
        decisive=decisive,
        # A function of input is not recorded: where things lie changes no result.
        command=train_command,
        # Who calls it: it ends when that process does, also while it is still starting.
        caller=lambda wildcards, input: os.getpid(),
    message:
        "Train {wildcards.model} ({wildcards.schedule}) with {wildcards.strategy},"
        " {wildcards.workers} worker(s) x {wildcards.threads} thread(s),"
        " {wildcards.dataset} {wildcards.split}, seed {wildcards.seed}"
    shell:
        # exec, so that killing Snakemake ends the training and not a shell around it.
        "exec {params.command:q} --cores {threads} --die-with-parent {params.caller}"
        " > {log:q} 2>&1"
