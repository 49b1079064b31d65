#!/bin/sh
# Environments for the peers of benchmarks/training/throughput.py: sh benchmarks/training/engines/setup.sh FOLDER [PYTHON]
# torch first and at its exact version: a looser request can pull several GB of CUDA packages.
set -eu
folder=${1:-.peers}
python=${2:-python3}

make() {
    name=$1
    shift
    "$python" -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip install --quiet torch==2.13.0 numpy safetensors
    "$folder/$name/bin/python" -m pip install --quiet "$@"
}

make transformers transformers==5.23.0
# After `pip install eole` alone, `eole --help` stops with ModuleNotFoundError: aiohttp. The classes used here load without.
make eole eole==0.6.4 aiohttp
# After `pip install joeynmt` alone, `python -m joeynmt` stops with ModuleNotFoundError: importlib_metadata; its tokenizer
# then stops with today's sentencepiece (AttributeError), which is not used here.
make joeynmt joeynmt==2.3.0 importlib_metadata
