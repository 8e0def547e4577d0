# One training: one fold of one dataset, one model, schedule, strategy, number of workers.


rule train:
    input:
        unpack(data_of),
    output:
        metrics=f"results/runs/{PATH}/metrics.json",
        trace=f"results/runs/{PATH}/utilisation.csv",
        weights=f"results/runs/{PATH}/weights.pt",
    log:
        f"results/logs/train/{PATH}.log",
    benchmark:
        f"results/benchmarks/train/{PATH}.tsv"
    priority: lambda wildcards: estimate.seconds(run_of(wildcards))
    conda:
        "../../environment.yml"
    threads: run_threads
    resources:
        mem_mb=lambda wildcards, attempt: attempt * estimate.memory_mb(run_of(wildcards)),
        runtime=lambda wildcards, attempt: attempt * estimate.minutes(run_of(wildcards)),
        slurm_extra=lambda wildcards: (
            "--exclusive" if PATH.format(**wildcards) in TABLE.exclusive else ""
        ),
    params:
        # What decides the result, as two strings: Snakemake compares them with those of the last time.
        settings=lambda wildcards: run_of(wildcards).to_json(),
        code=lambda wildcards: fingerprint.of_run(run_of(wildcards)),
        # What does not: a function of input or output is not recorded.
        program=lambda wildcards, input: [
            sys.executable,
            f"{workflow.basedir}/scripts/train.py",
        ],
        data=lambda wildcards, input: f"results/data/{wildcards.dataset}",
        fold_of=lambda wildcards, input: (
            ["--fold-of", input.fold_of] if "fold_of" in input.keys() else []
        ),
        folder=subpath(output.metrics, parent=True),
        # Not an output: those of a job that fails are deleted, and this is what it resumes from.
        work=lambda wildcards, output: f"results/checkpoints/{PATH.format(**wildcards)}",
    message:
        "Train {wildcards.model} ({wildcards.schedule}) with {wildcards.strategy},"
        " {wildcards.workers} worker(s) x {wildcards.threads} thread(s),"
        " {wildcards.dataset} {wildcards.split}, seed {wildcards.seed}"
    shell:
        # exec, so that killing Snakemake ends the training and not a shell around it.
        "exec {params.program:q} --settings {params.settings:q} --data {params.data:q}"
        " {params.fold_of:q} --output {params.folder:q} --work {params.work:q}"
        " --cores {threads} --die-with-parent > {log:q} 2>&1"
