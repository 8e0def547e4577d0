# Data and folds. The output of a rule is a mark, a file whose name has a digest of all that the
# result is made of; see scripts/allcores_study/records/marks.py. So content decides what is rebuilt,
# not the times of files or Snakemake's records.


# On a cluster, these run where snakemake was started: other nodes often have no network.
localrules:
    prepare_dataset,
    assign_folds,
    assign_inner_folds,


rule prepare_dataset:
    output:
        "<results>/data/{dataset}/made.{made_of}",
    log:
        "<results>/logs/prepare_dataset/{dataset}.{made_of}.log",
    conda:
        "../../environment.yml"
    resources:
        local_slot=1,
    params:
        command=DATA.prepare_command,
    message:
        "Prepare the dataset {wildcards.dataset}"
    shell:
        "exec {params.command} > {log:q} 2>&1"


rule assign_folds:
    input:
        DATA.inputs_of_folds,
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}.{made_of}",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}.{made_of}.log",
    conda:
        "../../environment.yml"
    resources:
        local_slot=1,
    params:
        command=DATA.assign_command,
    message:
        "Assign the samples of {wildcards.dataset} to {wildcards.folds} folds"
    shell:
        "exec {params.command} > {log:q} 2>&1"


# To select a candidate, the training set of each fold is split into inner folds.
use rule assign_folds as assign_inner_folds with:
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}_inner{inner}.{made_of}",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}_inner{inner}.{made_of}.log",
    message:
        "Split each training set of {wildcards.dataset} into {wildcards.inner} inner folds"
