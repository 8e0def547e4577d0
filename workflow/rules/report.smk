# The results of each study: tidy CSVs, tables, figures and a report, made in one process. Each file in
# scripts/allcores_study/analysis/tables/ and figures/ declares one table or figure and its inputs.


for JOB in CALL.studies:

    rule:
        name:
            f"report_{JOB.name}"
        input:
            JOB.inputs,
        output:
            **JOB.tidy,
            **JOB.marks,
            page=report(JOB.page, category="Studies", labels={"study": JOB.name}),
            beside=JOB.beside_page,
        log:
            CALL.folder.report_log(JOB.name),
        # On a cluster, this runs where snakemake was started.
        localrule: True
        conda:
            "../../environment.yml"
        threads: CALL.cores_of_a_report
        params:
            command=lambda wildcards, output, job=JOB: job.command(AGAIN, output.get("mark")),
        message:
            f"Make the tables and figures of the study {JOB.name}"
        shell:
            "exec {params.command} --cores {threads} > {log:q} 2>&1"


# The final models of each study with `final: true`, with what to expect of them.
for JOB in CALL.finals:

    rule:
        name:
            f"final_{JOB.name}"
        input:
            JOB.inputs,
        output:
            **JOB.marks,
            models=JOB.page,
        log:
            CALL.folder.report_log(f"{JOB.name}_final"),
        localrule: True
        conda:
            "../../environment.yml"
        params:
            command=lambda wildcards, output, job=JOB: job.command(AGAIN, output.get("mark")),
        message:
            f"Gather the final models of the study {JOB.name}"
        shell:
            "exec {params.command} > {log:q} 2>&1"
