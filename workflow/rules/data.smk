# Images and folds.


# On a cluster these run where snakemake was called: other nodes often have no network.
localrules:
    prepare_dataset,
    assign_folds,


rule prepare_dataset:
    output:
        images="<results>/data/{dataset}/images.npy",
        labels="<results>/data/{dataset}/labels.npy",
        pixel_sums="<results>/data/{dataset}/pixel_sums.npy",
        info="<results>/data/{dataset}/dataset.json",
    log:
        "<results>/logs/prepare_dataset/{dataset}.log",
    conda:
        "../../environment.yml"
    params:
        settings=lambda wildcards: dataset_of(wildcards).to_json(),
        code=lambda wildcards: fingerprint.of_dataset(dataset_of(wildcards).name),
        # A dataset made from files of yours is made anew when one of them changes.
        sources=lambda wildcards: preparation.sources(dataset_of(wildcards)),
        # A function of input is not recorded: another place for downloads changes no data.
        downloads=lambda wildcards, input: config.get("downloads", "results/downloads"),
    message:
        "Prepare the dataset {wildcards.dataset}"
    script:
        "../../scripts/prepare_dataset.py"


rule assign_folds:
    input:
        labels="<results>/data/{dataset}/labels.npy",
        info="<results>/data/{dataset}/dataset.json",
    output:
        "<results>/data/{dataset}/{folds}folds_seed{seed}.json",
    log:
        "<results>/logs/assign_folds/{dataset}_{folds}folds_seed{seed}.log",
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: fingerprint.of_script("assign_folds"),
    message:
        "Assign the samples of {wildcards.dataset} to {wildcards.folds} folds"
    script:
        "../../scripts/assign_folds.py"
