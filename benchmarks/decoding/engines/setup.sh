#!/bin/sh
# Environments for the peers of benchmarks/decoding: sh benchmarks/decoding/engines/setup.sh FOLDER [marian] [PYTHON]
# With "marian", that of Marian alone, which is optional: its package takes 600 MB.
set -eu
folder=${1:-.peers}
if [ "${2:-}" = marian ]; then
    "${3:-python3}" -m venv "$folder/marian"
    "$folder/marian/bin/python" -m pip install --quiet pymarian==1.12.42 numpy safetensors tokenizers
    exit
fi
python=${2:-python3}

"$python" -m venv "$folder/ctranslate2"
"$folder/ctranslate2/bin/python" -m pip install --quiet ctranslate2==4.8.5 safetensors tokenizers
# torch first and at its exact version: a looser request can pull several GB of CUDA packages.
"$python" -m venv "$folder/transformers"
"$folder/transformers/bin/python" -m pip install --quiet torch==2.13.0 numpy safetensors
"$folder/transformers/bin/python" -m pip install --quiet transformers==5.23.0
