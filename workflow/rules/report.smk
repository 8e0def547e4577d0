# Tables and figures of one study, all from its tidy CSVs.

STUDY = "results/studies/{study}"


rule collect:
    input:
        metrics=lambda wildcards: [
            f"results/runs/{run.path}/metrics.json" for run in runs_of(wildcards)
        ],
        traces=lambda wildcards: [
            f"results/runs/{run.path}/utilisation.csv" for run in runs_of(wildcards)
        ],
    output:
        runs=f"{STUDY}/runs.csv",
        epochs=f"{STUDY}/epochs.csv",
        staleness=f"{STUDY}/staleness.csv",
        classes=f"{STUDY}/classes.csv",
        confusion=f"{STUDY}/confusion.csv",
        utilisation=f"{STUDY}/utilisation.csv",
    log:
        "results/logs/collect/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("collect"),
        # To refuse results of other settings. A function of input is not recorded.
        settings=lambda wildcards, input: [run.to_json() for run in runs_of(wildcards)],
    message:
        "Collect the results of the study {wildcards.study}"
    script:
        "../../scripts/collect.py"


rule accuracy_table:
    input:
        runs=rules.collect.output.runs,
    output:
        csv=f"{STUDY}/accuracy_table.csv",
        html=report(
            f"{STUDY}/accuracy_table.html",
            caption="../report/accuracy_table.rst",
            category="{study}",
            labels={"what": "accuracy", "kind": "table"},
        ),
    log:
        "results/logs/accuracy_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("accuracy_table"),
    message:
        "Tabulate accuracy in the study {wildcards.study}"
    script:
        "../../scripts/accuracy_table.py"


rule class_table:
    input:
        classes=rules.collect.output.classes,
    output:
        csv=f"{STUDY}/class_table.csv",
        html=report(
            f"{STUDY}/class_table.html",
            caption="../report/class_table.rst",
            category="{study}",
            labels={"what": "accuracy per class", "kind": "table"},
        ),
    log:
        "results/logs/class_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("class_table"),
    message:
        "Tabulate accuracy per class in the study {wildcards.study}"
    script:
        "../../scripts/class_table.py"


rule speed_table:
    input:
        runs=rules.collect.output.runs,
        epochs=rules.collect.output.epochs,
    output:
        csv=f"{STUDY}/speed_table.csv",
        html=report(
            f"{STUDY}/speed_table.html",
            caption="../report/speed_table.rst",
            category="{study}",
            labels={"what": "speed", "kind": "table"},
        ),
    log:
        "results/logs/speed_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("speed_table"),
        baseline=baseline_of,
    message:
        "Tabulate speed in the study {wildcards.study}"
    script:
        "../../scripts/speed_table.py"


rule accuracy_figure:
    input:
        runs=rules.collect.output.runs,
    output:
        png=report(
            f"{STUDY}/accuracy_figure.png",
            caption="../report/accuracy_figure.rst",
            category="{study}",
            labels={"what": "accuracy", "kind": "figure"},
        ),
        svg=f"{STUDY}/accuracy_figure.svg",
    log:
        "results/logs/accuracy_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("accuracy_figure"),
    message:
        "Plot accuracy in the study {wildcards.study}"
    script:
        "../../scripts/accuracy_figure.py"


rule class_figure:
    input:
        table=rules.class_table.output.csv,
    output:
        png=report(
            f"{STUDY}/class_figure.png",
            caption="../report/class_figure.rst",
            category="{study}",
            labels={"what": "accuracy per class", "kind": "figure"},
        ),
        svg=f"{STUDY}/class_figure.svg",
    log:
        "results/logs/class_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("class_figure"),
    message:
        "Plot accuracy per class in the study {wildcards.study}"
    script:
        "../../scripts/class_figure.py"


rule confusion_figure:
    input:
        confusion=rules.collect.output.confusion,
    output:
        png=report(
            f"{STUDY}/confusion_figure.png",
            caption="../report/confusion_figure.rst",
            category="{study}",
            labels={"what": "confusion matrix", "kind": "figure"},
        ),
        svg=f"{STUDY}/confusion_figure.svg",
    log:
        "results/logs/confusion_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("confusion_figure"),
        baseline=baseline_of,
    message:
        "Plot confusion matrices of the study {wildcards.study}"
    script:
        "../../scripts/confusion_figure.py"


rule loss_figure:
    input:
        epochs=rules.collect.output.epochs,
    output:
        png=report(
            f"{STUDY}/loss_figure.png",
            caption="../report/loss_figure.rst",
            category="{study}",
            labels={"what": "training loss", "kind": "figure"},
        ),
        svg=f"{STUDY}/loss_figure.svg",
    log:
        "results/logs/loss_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("loss_figure"),
    message:
        "Plot training loss in the study {wildcards.study}"
    script:
        "../../scripts/loss_figure.py"


rule speedup_figure:
    input:
        table=rules.speed_table.output.csv,
    output:
        png=report(
            f"{STUDY}/speedup_figure.png",
            caption="../report/speedup_figure.rst",
            category="{study}",
            labels={"what": "speedup", "kind": "figure"},
        ),
        svg=f"{STUDY}/speedup_figure.svg",
    log:
        "results/logs/speedup_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("speedup_figure"),
        baseline=baseline_of,
    message:
        "Plot speedup in the study {wildcards.study}"
    script:
        "../../scripts/speedup_figure.py"


rule utilisation_figure:
    input:
        runs=rules.collect.output.runs,
        utilisation=rules.collect.output.utilisation,
    output:
        png=report(
            f"{STUDY}/utilisation_figure.png",
            caption="../report/utilisation_figure.rst",
            category="{study}",
            labels={"what": "CPU utilisation", "kind": "figure"},
        ),
        svg=f"{STUDY}/utilisation_figure.svg",
    log:
        "results/logs/utilisation_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("utilisation_figure"),
    message:
        "Plot CPU utilisation in the study {wildcards.study}"
    script:
        "../../scripts/utilisation_figure.py"
