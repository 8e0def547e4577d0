# Snakemake looks for this file first; everything is in workflow/Snakefile.


include: "workflow/Snakefile"


rule default:
    default_target: True  # the one of an included file does not count
    input:
        rules.all.input,
    localrule: True
    message:
        "All requested files are there"
