# allcores in a container, as the command of the wheel: see docs/first-report.md. apptainer.def is the same for clusters.
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

# Nobody, or whom --user says by number: neither has the name and the HOME that Snakemake asks for.
ENV PATH=/opt/environment/bin:$PATH HOME=/tmp USER=allcores
USER 65534:65534
WORKDIR /work
ENTRYPOINT ["allcores"]
CMD ["--help"]
