#!/bin/sh
# Environments for the peers of benchmarks/families/throughput.py: sh benchmarks/families/engines/setup.sh FOLDER [PYTHON]
set -eu
folder=${1:-.peers}
python=${2:-python3}

# torch first and at its exact version: a looser request can pull several GB of CUDA packages.
for peer in transformers sentence_transformers; do
    "$python" -m venv "$folder/$peer"
    "$folder/$peer/bin/python" -m pip install --quiet torch==2.13.0 numpy safetensors
    "$folder/$peer/bin/python" -m pip install --quiet transformers==5.23.0
done
"$folder/sentence_transformers/bin/python" -m pip install --quiet sentence-transformers
