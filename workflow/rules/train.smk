# Training: a job trains one run, or several short ones.


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
        "exec {params.command} --cores {threads} > {log:q} 2>&1"


# Runs that take seconds share a job; planning/dealing.py decides which. The output has another name in each
# invocation, so that Snakemake always runs the job.
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
        command=RUNS.command,
    message:
        "Train short runs, see {log}"
    shell:
        "exec {params.command} --cores {threads} > {log:q} 2>&1"
