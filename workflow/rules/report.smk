# The results of each study: tidy CSVs, tables, figures, a report and final models, made in one process. Each file in
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
        resources:
            local_slot=1,
        params:
            command=lambda wildcards, output, job=JOB: job.command(AGAIN, output.get("mark")),
        message:
            f"Make the tables and figures of the study {JOB.name}"
        shell:
            "exec {params.command} > {log:q} 2>&1"
