# Figures of one study, from its tidy CSVs and its tables.


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
        "<results>/logs/accuracy_figure/{study}.log",
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
        "<results>/logs/class_figure/{study}.log",
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
        "<results>/logs/confusion_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("confusion_figure"),
        baseline=baseline_of,
    message:
        "Plot confusion matrices of the study {wildcards.study}"
    script:
        "../../scripts/confusion_figure.py"


rule curves_figure:
    input:
        epochs=rules.collect.output.epochs,
    output:
        png=report(
            f"{STUDY}/curves_figure.png",
            caption="../report/curves_figure.rst",
            category="{study}",
            labels={"what": "accuracy by epoch and time", "kind": "figure"},
        ),
        svg=f"{STUDY}/curves_figure.svg",
    log:
        "<results>/logs/curves_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("curves_figure"),
    message:
        "Plot accuracy against epochs and time in the study {wildcards.study}"
    script:
        "../../scripts/curves_figure.py"


rule target_figure:
    input:
        table=rules.target_table.output.csv,
    output:
        png=report(
            f"{STUDY}/target_figure.png",
            caption="../report/target_figure.rst",
            category="{study}",
            labels={"what": "epochs and time to an accuracy", "kind": "figure"},
        ),
        svg=f"{STUDY}/target_figure.svg",
    log:
        "<results>/logs/target_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("target_figure"),
        target=target_of,
    message:
        "Plot when the target is reached in the study {wildcards.study}"
    script:
        "../../scripts/target_figure.py"


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
        "<results>/logs/loss_figure/{study}.log",
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
        "<results>/logs/speedup_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("speedup_figure"),
        baseline=baseline_of,
    message:
        "Plot speedup in the study {wildcards.study}"
    script:
        "../../scripts/speedup_figure.py"


rule phases_figure:
    input:
        epochs=rules.collect.output.epochs,
    output:
        png=report(
            f"{STUDY}/phases_figure.png",
            caption="../report/phases_figure.rst",
            category="{study}",
            labels={"what": "where the time goes", "kind": "figure"},
        ),
        svg=f"{STUDY}/phases_figure.svg",
    log:
        "<results>/logs/phases_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("phases_figure"),
    message:
        "Plot where the time goes in the study {wildcards.study}"
    script:
        "../../scripts/phases_figure.py"


rule elapsed_figure:
    input:
        speeds=rules.speed_table.output.csv,
    output:
        png=report(
            f"{STUDY}/elapsed_figure.png",
            caption="../report/elapsed_figure.rst",
            category="{study}",
            labels={"what": "elapsed time", "kind": "figure"},
        ),
        svg=f"{STUDY}/elapsed_figure.svg",
    log:
        "<results>/logs/elapsed_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("elapsed_figure"),
        references=references_of,
    message:
        "Plot elapsed times in the study {wildcards.study}"
    script:
        "../../scripts/elapsed_figure.py"


rule size_figure:
    input:
        runs=rules.collect.output.runs,
        epochs=rules.collect.output.epochs,
        fits=rules.size_table.output.csv,
    output:
        png=report(
            f"{STUDY}/size_figure.png",
            caption="../report/size_figure.rst",
            category="{study}",
            labels={"what": "epoch time by training-set size", "kind": "figure"},
        ),
        svg=f"{STUDY}/size_figure.svg",
    log:
        "<results>/logs/size_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("size_figure"),
    message:
        "Plot epoch times in the study {wildcards.study}"
    script:
        "../../scripts/size_figure.py"


rule staleness_figure:
    input:
        staleness=rules.collect.output.staleness,
    output:
        png=report(
            f"{STUDY}/staleness_figure.png",
            caption="../report/staleness_figure.rst",
            category="{study}",
            labels={"what": "staleness", "kind": "figure"},
        ),
        svg=f"{STUDY}/staleness_figure.svg",
    log:
        "<results>/logs/staleness_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("staleness_figure"),
    message:
        "Plot staleness in the study {wildcards.study}"
    script:
        "../../scripts/staleness_figure.py"


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
        "<results>/logs/utilisation_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("utilisation_figure"),
    message:
        "Plot CPU utilisation in the study {wildcards.study}"
    script:
        "../../scripts/utilisation_figure.py"


rule packing_figure:
    input:
        packed=rules.collect.output.runs,
        single=lambda wildcards: of_other(wildcards, "runs"),
        packed_utilisation=rules.collect.output.utilisation,
        single_utilisation=lambda wildcards: of_other(wildcards, "utilisation"),
    output:
        png=report(
            f"{STUDY}/packing_figure.png",
            caption="../report/packing_figure.rst",
            category="{study}",
            labels={"what": "packed or one after the other", "kind": "figure"},
        ),
        svg=f"{STUDY}/packing_figure.svg",
    log:
        "<results>/logs/packing_figure/{study}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("packing_figure"),
    message:
        "Plot CPU use packed and one after the other in the study {wildcards.study}"
    script:
        "../../scripts/packing_figure.py"
