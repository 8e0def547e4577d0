# Tables of one study, all from its tidy CSVs, and what they come to in words.

STUDY = "<results>/studies/{study}"


rule collect:
    input:
        metrics=lambda wildcards: [
            f"{RESULTS}/runs/{run.path}/metrics.json" for run in runs_of(wildcards)
        ],
        traces=lambda wildcards: [
            f"{RESULTS}/runs/{run.path}/utilisation.csv" for run in runs_of(wildcards)
        ],
    output:
        runs=f"{STUDY}/runs.csv",
        epochs=f"{STUDY}/epochs.csv",
        staleness=f"{STUDY}/staleness.csv",
        classes=f"{STUDY}/classes.csv",
        confusion=f"{STUDY}/confusion.csv",
        utilisation=f"{STUDY}/utilisation.csv",
        missing=f"{STUDY}/missing.csv",
    log:
        "<results>/logs/collect/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("collect"),
        # To refuse results of other settings. A function of input is not recorded.
        settings=lambda wildcards, input: [run.to_json() for run in runs_of(wildcards)],
        data=lambda wildcards, input: f"{RESULTS}/data",
        exclusive=lambda wildcards, input: [
            run.path for run in runs_of(wildcards) if run.path in TABLE.exclusive
        ],
        # Runs that failed, in a call that makes do without them.
        missing=lambda wildcards: TABLE.missing.get(wildcards.study, []),
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
        "<results>/logs/accuracy_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("accuracy_table"),
    message:
        "Tabulate accuracy in the study {wildcards.study}"
    script:
        "../../scripts/accuracy_table.py"


rule comparison_table:
    input:
        runs=rules.collect.output.runs,
    output:
        csv=f"{STUDY}/comparison_table.csv",
        html=report(
            f"{STUDY}/comparison_table.html",
            caption="../report/comparison_table.rst",
            category="{study}",
            labels={"what": "does accuracy differ?", "kind": "table"},
        ),
    log:
        "<results>/logs/comparison_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("comparison_table"),
        baseline=baseline_of,
    message:
        "Compare accuracies in the study {wildcards.study}"
    script:
        "../../scripts/comparison_table.py"


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
        "<results>/logs/class_table/{study}.log",
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
        "<results>/logs/speed_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("speed_table"),
        baseline=baseline_of,
    message:
        "Tabulate speed in the study {wildcards.study}"
    script:
        "../../scripts/speed_table.py"


rule size_table:
    input:
        runs=rules.collect.output.runs,
        epochs=rules.collect.output.epochs,
    output:
        csv=f"{STUDY}/size_table.csv",
        html=report(
            f"{STUDY}/size_table.html",
            caption="../report/size_table.rst",
            category="{study}",
            labels={"what": "epoch time by training-set size", "kind": "table"},
        ),
    log:
        "<results>/logs/size_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("size_table"),
    message:
        "Fit epoch times in the study {wildcards.study}"
    script:
        "../../scripts/size_table.py"


rule target_table:
    input:
        epochs=rules.collect.output.epochs,
    output:
        csv=f"{STUDY}/target_table.csv",
        html=report(
            f"{STUDY}/target_table.html",
            caption="../report/target_table.rst",
            category="{study}",
            labels={"what": "epochs and time to an accuracy", "kind": "table"},
        ),
    log:
        "<results>/logs/target_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("target_table"),
        target=target_of,
    message:
        "Tabulate when the target is reached in the study {wildcards.study}"
    script:
        "../../scripts/target_table.py"


rule elapsed_table:
    input:
        speeds=rules.speed_table.output.csv,
    output:
        csv=f"{STUDY}/elapsed_table.csv",
        html=report(
            f"{STUDY}/elapsed_table.html",
            caption="../report/elapsed_table.rst",
            category="{study}",
            labels={"what": "elapsed time", "kind": "table"},
        ),
    log:
        "<results>/logs/elapsed_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("elapsed_table"),
        references=references_of,
    message:
        "Tabulate elapsed times in the study {wildcards.study}"
    script:
        "../../scripts/elapsed_table.py"


rule packing_table:
    input:
        packed=rules.collect.output.runs,
        single=lambda wildcards: of_other(wildcards, "runs"),
    output:
        csv=f"{STUDY}/packing_table.csv",
        html=report(
            f"{STUDY}/packing_table.html",
            caption="../report/packing_table.rst",
            category="{study}",
            labels={"what": "packed or one after the other", "kind": "table"},
        ),
    log:
        "<results>/logs/packing_table/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("packing_table"),
    message:
        "Compare the study {wildcards.study} with one run after the other"
    script:
        "../../scripts/packing_table.py"


rule verdict:
    input:
        unpack(found_in),
    output:
        html=report(
            f"{STUDY}/verdict.html",
            caption="../report/verdict.rst",
            category="{study}",
            labels={"what": "0 verdict", "kind": "text"},
        ),
        # The report's first page takes it from here.
        rst=f"{STUDY}/verdict.rst",
    log:
        "<results>/logs/verdict/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("verdict"),
        facts=facts_of,
    message:
        "Say what the study {wildcards.study} found"
    script:
        "../../scripts/verdict.py"
