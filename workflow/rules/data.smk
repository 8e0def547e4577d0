# Data and folds. Functions of input say what this call makes first; what is there and valid is no
# input. So content decides, and neither the times of files nor Snakemake's records.


# On a cluster these run where snakemake was called: other nodes often have no network.
localrules:
    prepare_dataset,
    assign_folds,
    assign_inner_folds,


rule prepare_dataset:
    input:
        DATA.dataset_inputs,
    output:
        inputs="<results>/data/{dataset}/inputs.npy",
        targets="<results>/data/{dataset}/targets.npy",
        info="<results>/data/{dataset}/dataset.json",
    log:
        "<results>/logs/prepare_dataset/{dataset}.log",
    conda:
        "../../environment.yml"
    params:
        command=DATA.prepare_command,
    message:
        "Prepare the dataset {wildcards.dataset}"
    shell:
        "exec {params.command} > {log:q} 2>&1"


rule assign_folds:
    input:
        DATA.folds_inputs,
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}.json",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}.log",
    conda:
        "../../environment.yml"
    params:
        command=DATA.assign_command,
    message:
        "Assign the samples of {wildcards.dataset} to {wildcards.folds} folds"
    shell:
        "exec {params.command} > {log:q} 2>&1"


# Where a candidate is selected, the training part of each fold is cut into inner folds.
use rule assign_folds as assign_inner_folds with:
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}_inner{inner}.json",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}_inner{inner}.log",
    message:
        "Cut the training parts of {wildcards.dataset} into {wildcards.inner} folds each"
