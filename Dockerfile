# allcores in a container; it runs the command of the wheel, see docs/first-report.md. For clusters: apptainer.def.
FROM python:3.11-slim-bookworm@sha256:b18992999dbe963a45a8a4da40ac2b1975be1a776d939d098c647482bcad5cba

WORKDIR /opt/allcores
COPY pyproject.toml requirements.lock environment.yml hatch_build.py README.md LICENSE Snakefile ./
COPY scripts scripts
COPY workflow workflow
COPY config config
COPY profiles profiles
RUN python3 -m venv /opt/environment \
    && /opt/environment/bin/python scripts/install.py run \
    && /opt/environment/bin/python -m pip install --no-cache-dir --no-deps .

# Runs as nobody, or as the user number that --user gives. Neither has the name and HOME that Snakemake needs.
ENV PATH=/opt/environment/bin:$PATH HOME=/tmp USER=allcores
USER 65534:65534
WORKDIR /work
ENTRYPOINT ["allcores"]
CMD ["--help"]
