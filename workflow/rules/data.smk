# Data and folds, made where they are missing or have changed.


# On a cluster these run where snakemake was called: other nodes often have no network.
localrules:
    prepare_dataset,
    assign_folds,
    assign_inner_folds,


rule prepare_dataset:
    input:
        DATA.check_dataset,
    output:
        inputs="<results>/data/{dataset}/inputs.npy",
        targets="<results>/data/{dataset}/targets.npy",
        info="<results>/data/{dataset}/dataset.json",
    log:
        "<results>/logs/prepare_dataset/{dataset}.log",
    conda:
        "../../environment.yml"
    params:
        settings=DATA.settings,
        code=DATA.code,
        sources=DATA.sources,
        # Functions of input are not recorded: another place for downloads changes no data.
        command=DATA.prepare_command,
    message:
        "Prepare the dataset {wildcards.dataset}"
    shell:
        "exec {params.command} > {log:q} 2>&1"


rule assign_folds:
    input:
        targets="<results>/data/{dataset}/targets.npy",
        info="<results>/data/{dataset}/dataset.json",
        check=DATA.check_folds,
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}.json",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}.log",
    conda:
        "../../environment.yml"
    params:
        code=fingerprint.of_script("assign_folds"),
        # Functions of output are not recorded.
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
