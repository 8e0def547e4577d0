"""Does `strategies: [auto]` choose well? It against each fixed way, study by study.

Each way is a campaign of its own, which nothing else runs beside; what counts is the time from the
start of its first run to the end of the last.
"""

import subprocess
import tempfile
from pathlib import Path

import pandas as pd
import yaml
from measure import IS_SMOKE, ROOT, SNAKEMAKE, sized

from allcores_study.analysis import tidy

MODELS = sized(
    """
lenet: {batch_size: 32, epochs: 40, optimizer: {name: adam, lr: 0.002}}
mobilenet: {width: 0.125, batch_size: 32, epochs: 12, optimizer: {name: adamw, lr: 0.02}}
vgg11: {width: 0.125, batch_size: 32, epochs: 10, optimizer: {name: sgd, lr: 0.05}}
mlp: {batch_size: 64, epochs: 100, optimizer: {name: sgd, lr: 0.05}}
resnet18: {batch_size: 64, epochs: 1, optimizer: {name: sgd, lr: 0.05}}
""",
    "mlp: {hidden: [8], batch_size: 64, epochs: 1, optimizer: {name: sgd, lr: 0.05}}",
)
# Numbers of runs: an even one leaves no core of two idle, of three the last is alone.
FOLDS = sized((3, 6), (2,))
WAYS = {
    "serial": {"strategies": ["serial"]},
    "serial, 2 threads": {"strategies": ["serial"], "cores": [2]},
    **{name: {"strategies": [name], "cores": [2]} for name in ("ddp", "ring", "shared_memory")},
    "auto": {"strategies": ["auto"]},
}
RECIPE = sized({}, {"precision": "fp32", "memory_format": "contiguous"})
if IS_SMOKE:
    WAYS = {name: WAYS[name] for name in ("serial", "auto")}


def makespan(folder, model, entry, folds, name):
    """Seconds of a study of one model, made in a folder of its own."""
    config = folder / f"{model}_{folds}_{name.replace(' ', '_').replace(',', '')}.yaml"
    study = {"datasets": ["digits"], "folds": folds, "models": [model]} | WAYS[name]
    content = {"models": {model: entry}, "studies": {"one": study}} | RECIPE
    config.write_text(yaml.safe_dump(content))
    command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--cores", "2"]
    command += ["--workflow-profile", ROOT / "workflow" / "profiles" / "default", "--quiet", "all"]
    command += ["--configfile", config]
    subprocess.run(list(map(str, command)), cwd=folder, check=True, capture_output=True)
    runs = pd.read_csv(folder / "results" / config.stem / "studies" / "one" / "runs.csv")
    setup = f"{runs['strategy'].iloc[0]}, {runs['cores'].iloc[0]} cores"
    return tidy.makespan(runs), setup


if __name__ == "__main__":
    print("| model | runs | auto took | seconds | best fixed way | seconds | auto over best |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for model, entry in yaml.safe_load(MODELS).items():
            for folds in FOLDS:
                makespans = {
                    name: makespan(Path(place), model, entry, folds, name) for name in WAYS
                }
                auto, setup = makespans.pop("auto")
                best = min(makespans, key=lambda name: makespans[name][0])
                seconds, of_best = makespans[best]
                same = ", the same way" if setup == of_best else ""
                print(
                    f"| {model} | {folds} | {setup} | {auto:.1f} | {best} | {seconds:.1f} "
                    f"| {auto / seconds:.2f}{same} |",
                    flush=True,
                )
