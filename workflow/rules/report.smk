# What each study ends with: tidy CSVs, tables, figures and a report, made in one process. Each file in
# scripts/allcores/analysis/tables/ and figures/ declares one, with what it is made from.

INNER = SelectionJobs(CONFIG, TABLE, FOLDER, warm(PANDAS))


# Where a study selects, which of its runs are final is known when all candidates have been scored.
checkpoint select_candidate:
    input:
        lambda wildcards: INNER.inputs(wildcards.selection, checkpoints),
    output:
        FOLDER.selection(),
    log:
        "<results>/logs/select_candidate/{selection}.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: INNER.code(wildcards.selection),
        # A function of input is not recorded.
        command=lambda wildcards, input, output: INNER.command(wildcards.selection, output[0]),
    message:
        "Choose between the candidates of {wildcards.selection}"
    shell:
        "exec {params.command} > {log:q} 2>&1"


for JOB in STUDIES:

    rule:
        name:
            f"report_{JOB.study}"
        input:
            **JOB.of_other,
            **JOB.inputs(checkpoints),
            selections=[FOLDER.selection(each.path) for each in JOB.selections],
        output:
            **JOB.tidy,
            page=report(
                JOB.page,
                caption="../report/page.rst",
                category=JOB.study,
                labels={"what": "0 report", "kind": "page"},
            ),
            shown=[
                report(file, caption=str(caption), category=JOB.study, labels=labels)
                for file, caption, labels in JOB.shown
            ],
            beside=JOB.beside,
        log:
            f"<results>/logs/report/{JOB.study}.log",
        # On a cluster it runs where snakemake was called.
        localrule: True
        conda:
            "../../environment.yml"
        params:
            # Recorded: each of them decides what is in the report.
            code=JOB.code(),
            facts=repr(JOB.facts),
            products=[product.name for product in JOB.products],
            missing=JOB.missing,
            # A function of input is not recorded.
            command=lambda wildcards, input, job=JOB: job.command(
                calls.again(*CALLED_WITH), warm(PANDAS)
            ),
        message:
            f"Make the tables and figures of the study {JOB.study}"
        shell:
            "exec {params.command} > {log:q} 2>&1"
