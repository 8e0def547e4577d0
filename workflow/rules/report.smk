# The products of a study: its tidy CSVs, tables, figures and verdict. Each file in
# scripts/allcores/analysis/tables/ and figures/ declares one, with its inputs.

STUDY = f"{RESULTS}/studies/{{study}}"


STUDIES = StudyJobs(config, TABLE, FOLDER)


rule collect:
    input:
        metrics=STUDIES.metrics,
        traces=STUDIES.traces,
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
        settings=lambda wildcards, input: [run.to_json() for run in STUDIES.runs(wildcards)],
        asked=lambda wildcards, input: {"curves": TABLE.curves, "exclusive": TABLE.exclusive},
        data=lambda wildcards, input: f"{RESULTS}/data",
        # Runs that failed, in a call that makes do without them.
        missing=lambda wildcards: TABLE.missing.get(wildcards.study, []),
    message:
        "Collect the results of the study {wildcards.study}"
    script:
        "../../scripts/collect.py"


rule table:
    input:
        unpack(STUDIES.inputs),
    output:
        csv=f"{STUDY}/{{product}}.csv",
        html=report(
            f"{STUDY}/{{product}}.html",
            caption="../report/product.rst",
            category="{study}",
            labels=STUDIES.labels,
        ),
    log:
        "<results>/logs/table/{study}/{product}.log",
    wildcard_constraints:
        product=one_of(products.names("table")),
    conda:
        "../../environment.yml"
    params:
        code=STUDIES.code,
        facts=STUDIES.facts,
        caption=STUDIES.caption,
    message:
        "Make the {wildcards.product} of the study {wildcards.study}"
    script:
        "../../scripts/table.py"


rule figure:
    input:
        unpack(STUDIES.inputs),
    output:
        png=report(
            f"{STUDY}/{{product}}.png",
            caption="../report/product.rst",
            category="{study}",
            labels=STUDIES.labels,
        ),
        svg=f"{STUDY}/{{product}}.svg",
    log:
        "<results>/logs/figure/{study}/{product}.log",
    wildcard_constraints:
        product=one_of(products.names("figure")),
    conda:
        "../../environment.yml"
    params:
        code=STUDIES.code,
        facts=STUDIES.facts,
        caption=STUDIES.caption,
    message:
        "Draw the {wildcards.product} of the study {wildcards.study}"
    script:
        "../../scripts/figure.py"


rule verdict:
    input:
        unpack(STUDIES.inputs_of_verdict),
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
        code=STUDIES.code_of_verdict,
        facts=STUDIES.all_facts,
        spoken_of=STUDIES.spoken_of,
    message:
        "Say what the study {wildcards.study} found"
    script:
        "../../scripts/verdict.py"
