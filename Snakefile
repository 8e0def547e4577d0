# Where Snakemake looks first; all of it is in workflow/Snakefile.


include: "workflow/Snakefile"


rule default:
    default_target: True  # an included file gives none
    input:
        rules.all.input,
    localrule: True
    message:
        "All requested files are there"
